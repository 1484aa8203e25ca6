"""Draws the next token from logits, with randomness that depends only on seed and position."""
