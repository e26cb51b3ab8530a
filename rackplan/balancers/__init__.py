"""Balancers that engines load: the policies of DeepSeek's EPLB, vLLM, SGLang and vllm-ascend, ours inside.

A module for each, with functions of the engine's own signature; :mod:`rackplan.balancers.plugin` puts them in place.
"""
