"""Tokens that are guessed, and computed together with the one before them: who is asked for them, and what became of them."""
