"""Handles a request in the engine before it is scheduled: checks, limits of the queue, its place, its timeout. No tensors."""
