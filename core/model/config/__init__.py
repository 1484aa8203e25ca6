"""Reads what a model's config says: its kind, its class and its limits. Refuses what cannot be served."""
