"""`llmfw plan`: what of a model fits on a device, from its config alone."""
