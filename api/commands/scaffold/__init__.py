"""`llmfw plugin`: a package with a plugin, to begin with."""
