"""Cost and power of GPUs and of their tokens."""
