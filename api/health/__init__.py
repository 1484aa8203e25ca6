"""Checks whether the engine works, by giving it a request."""
