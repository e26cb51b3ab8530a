"""Token traffic of a step: destinations, vectors moved by GPUs, and bytes on each fabric."""
