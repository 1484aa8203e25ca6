"""Loads a checkpoint as a model that uses llmfw's attention backends: load, probe, and merge, replace and
pack modules.

Works with transformers' models. Independent of requests and steps.
"""
