"""Finds and loads adapters that requests name and that are not loaded."""
