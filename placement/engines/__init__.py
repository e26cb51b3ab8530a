"""Plans in the forms that serving engines load: writers, readers, checks."""

NAMES = ("sglang", "trtllm", "vllm-ascend", "vllm")
"""The engines: the module of each (``vllm_ascend``) has its ``ENGINE``."""
