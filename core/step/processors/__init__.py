"""Runs logits processors, which plugins bring, on the rows that ask for them."""
