"""Servers from Python: a process of `llmfw serve` that lasts as long as a `with` block."""
