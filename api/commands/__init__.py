"""The commands of `llmfw`, one module each. Until one runs, they import only click and light core modules."""
