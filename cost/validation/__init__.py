"""Measurements by others: one format for all of them, what the model predicts for each, and how far off it is."""
