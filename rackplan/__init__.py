"""Placement plans for large models on real clusters."""
