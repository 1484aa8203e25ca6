"""Draws the next token from logits, with randomness that depends on seed and position alone."""
