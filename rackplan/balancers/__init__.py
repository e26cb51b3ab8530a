"""Balancers that engines load through the interfaces of DeepSeek's EPLB, vLLM and SGLang.

A module for each, with functions of the engine's own signature; :mod:`rackplan.balancers.plugin` puts them in place.
"""
