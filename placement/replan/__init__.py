"""Old names of what is in :mod:`placement.migrate`, with a warning; they go in the next version."""
