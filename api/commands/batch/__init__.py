"""`llmfw batch`: batch jobs of a running server, and a whole file without one. A module for each command."""
