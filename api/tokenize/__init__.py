"""Text to token ids and back, as prompts are made."""
