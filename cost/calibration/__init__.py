"""Coefficients fitted to measurements, as data with their sources."""
