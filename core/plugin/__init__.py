"""Plugins: their hooks, how llmfw finds, loads and configures them, and how it isolates faults of broken ones."""
