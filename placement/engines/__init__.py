"""Placement formats of serving engines: writers, readers, checks."""

NAMES = ("sglang", "trtllm", "vllm-ascend", "vllm")
"""The engines: the module of each (``vllm_ascend``) has its ``ENGINE``."""
