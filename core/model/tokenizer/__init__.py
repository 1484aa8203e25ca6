"""Loads a model's tokenizer and chat template. Refuses files that contradict the model."""
