"""Experts and their tokens: where experts are placed, how engines split tokens over copies, what tokens reach."""
