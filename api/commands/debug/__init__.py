"""Commands for finding faults in llmfw itself."""
