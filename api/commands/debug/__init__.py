"""Commands for those who look for a fault in llmfw itself."""
