"""Commands: parse the request, call the library, show the result."""
