"""Runs modules and whole models on a few tokens, to compare their results."""
