"""The commands: each parses, calls and shows."""
