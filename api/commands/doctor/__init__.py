"""`llmfw plugins doctor`: checks every component against its interface. Runs a process per package, or per plugin."""
