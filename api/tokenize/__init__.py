"""Converts text to token ids and back, exactly as for prompts."""
