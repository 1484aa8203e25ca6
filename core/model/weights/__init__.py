"""Reads the weights of a model, by transformers or a plugin's weight loader, and compares them with the model."""
