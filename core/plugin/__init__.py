"""Plugins: their hooks, how they are found, loaded and given options, and what keeps the fault of a broken one its own."""
