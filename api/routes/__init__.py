"""The HTTP routes. Each module has a function that is given the service it serves and returns its handlers."""
