"""Answers embedding requests."""
