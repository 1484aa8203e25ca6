"""Reads LoRA adapters, and adds them to a loaded model's linear layers, by rows of a step."""
