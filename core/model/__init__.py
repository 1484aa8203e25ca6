"""Loads a checkpoint as a model that uses llmfw's attention backends.

This includes probing the model, and merging, replacing and packing its modules.

Works with transformers' models. Independent of requests and steps.
"""
