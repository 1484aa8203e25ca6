"""`llmfw plugin`: creates a package with a working plugin as a starting point."""
