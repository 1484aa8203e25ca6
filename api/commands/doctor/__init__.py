"""`llmfw plugins doctor`: checks every component against its interface. Runs one process per plugin."""
