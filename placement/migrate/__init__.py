"""Change a running placement as little as needed: few moves, a budget, lost GPUs, and where copies come from."""
