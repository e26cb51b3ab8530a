"""Analyses of a plan under changes: failures, more copies, other clusters, levers."""
