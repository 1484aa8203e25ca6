"""`llmfw plugins doctor`: every part is imported, each plugin's in a process of its own, and held against its interface."""
