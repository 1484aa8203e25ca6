"""Embeddings: a body becomes one engine request, its vectors a reply."""
