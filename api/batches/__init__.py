"""Batches: files of requests that run in addition to live traffic, and whose answers are written to files."""
