"""Checks whether the engine works, by a request to it."""
