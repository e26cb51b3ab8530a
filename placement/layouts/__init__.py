"""Layouts of a plan: enumerate those that fit, price them, place experts, choose by the goal."""
