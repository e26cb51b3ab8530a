"""Where the tokens of a step go: what they reach, the vectors that GPUs move for it, and the bytes on each fabric."""
