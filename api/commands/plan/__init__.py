"""`llmfw plan`: computes whether a model fits on a device, from its config alone."""
