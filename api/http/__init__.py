"""Formats of requests and replies over HTTP: bodies, errors, event streams, pages of lists, and the OpenAPI document."""
