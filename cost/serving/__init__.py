"""Serving of requests: prefill and decode pools, capacity of machine units, and sizing for a demand."""
