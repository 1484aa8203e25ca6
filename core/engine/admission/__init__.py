"""Admission control: checks of new requests, limits of the queue, timeouts, and reports to waiting clients.

No tensors.
"""
