"""Views of results, rendered as text, JSON and HTML."""
