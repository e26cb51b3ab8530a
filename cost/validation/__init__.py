"""Measurements by others: a common format, predictions, and errors."""
