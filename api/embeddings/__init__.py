"""Embeddings: converts a body to one engine request, and its vectors to a reply."""
