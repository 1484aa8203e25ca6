"""Runs a model to find its use of attention, positions and states. Refuses unsupported models."""
