"""Placement by co-activation: few domains, then few nodes per token, within a load limit."""
