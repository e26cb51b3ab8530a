"""A cluster changed: figures, faults, sizes and repeats."""
