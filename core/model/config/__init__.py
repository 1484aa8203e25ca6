"""Reads a model's kind, class and limits from its config. Refuses configs that cannot be served."""
