"""Exports the server's metrics for monitoring systems."""
