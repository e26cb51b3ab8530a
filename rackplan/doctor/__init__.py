"""Whether an installation can work: what it has, what is missing, and how to get it."""
