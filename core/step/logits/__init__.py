"""Applies requests' changes to logits before a token is drawn: masks, penalties, bias, and the earliest end."""
