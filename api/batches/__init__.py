"""Batches: files of requests that are answered beside live traffic, and whose answers are files again."""
