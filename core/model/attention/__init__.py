"""Attention of a model's layers: transformers' calls, their masks, and plain float32 code for comparisons."""
