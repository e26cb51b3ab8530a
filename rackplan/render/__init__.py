"""A view as text, and as one HTML file that needs no network."""
