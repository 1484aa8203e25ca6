"""Adjusts logits before sampling as requests specify: masks, penalties, logit bias and `min_tokens`."""
