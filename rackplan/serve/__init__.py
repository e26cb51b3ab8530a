"""The local page: a server on the loopback interface, its requests, its jobs and its files."""
