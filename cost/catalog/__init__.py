"""Models by name: the facts that their counts rest on, and what their authors publish."""
