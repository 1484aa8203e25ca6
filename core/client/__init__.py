"""Clients through which the API uses an engine. The engine runs in the same process or in its own."""
