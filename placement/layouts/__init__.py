"""Layouts of a plan: enumerate what fits, price it, place its experts, choose by the goal."""
