"""`llmfw plugin`: creates a package with a plugin to start from."""
