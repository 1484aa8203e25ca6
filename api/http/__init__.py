"""The HTTP form of requests and replies: bodies, errors, event streams, pages of lists, and OpenAPI."""
