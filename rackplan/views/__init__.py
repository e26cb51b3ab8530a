"""What is said of each result: one view, which text, JSON and HTML render."""
