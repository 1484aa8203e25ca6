"""Limits the work that runs in addition to live requests: batches and background responses."""
