"""Balancers that run while an engine serves, and a simulator that replays recorded loads through them."""
