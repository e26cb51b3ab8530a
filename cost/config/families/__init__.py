"""Adapters, one function for each architecture; a module for each way of building a layer."""
