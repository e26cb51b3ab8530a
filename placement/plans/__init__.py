"""Plans as files: their schema, what was found out about them, writing and reading."""
