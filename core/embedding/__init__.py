"""Embedding in place of generation: an engine whose requests are a prompt each, and what it is made of."""
