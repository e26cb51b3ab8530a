"""Results told once: a result becomes one document, and text, JSON, schema, frame and page derive from it."""
