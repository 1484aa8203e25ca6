"""The HTTP routes. Each module has a function that takes a service and returns the route handlers for it."""
