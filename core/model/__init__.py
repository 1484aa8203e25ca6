"""Loads a checkpoint as a model that uses llmfw's attention backends: load, probe, and merge, replace and pack modules.

Knows transformers' models, and nothing of requests or steps.
"""
