"""Encodes images for a model, and puts them in the place of tokens' embeddings."""
