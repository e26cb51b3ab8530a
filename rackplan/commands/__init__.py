"""One module a command: ``NAME`` and ``run``."""
