"""`llmfw plugins doctor`: imports every component, a process for each plugin, and checks it against its interface."""
