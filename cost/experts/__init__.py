"""Experts and their tokens: assignments, token splits over copies, and destinations of tokens."""
