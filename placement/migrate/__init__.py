"""Change a running placement with few moves: budgets, lost GPUs, and sources of copies."""
