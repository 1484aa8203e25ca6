"""Loads a model's tokenizer and chat template, and refuses those that contradict the model."""
