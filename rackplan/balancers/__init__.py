"""Balancers that engines load through the interfaces of DeepSeek's EPLB, vLLM, SGLang and vllm-ascend.

A module for each, with functions of the engine's own signature; :mod:`rackplan.balancers.plugin` puts them in place.
"""
