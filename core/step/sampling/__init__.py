"""Samples the next token from logits, with random numbers that depend only on seed and position."""
