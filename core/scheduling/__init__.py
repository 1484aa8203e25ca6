"""Scheduling without tensors: which sequences run, in which pages, and what they share. Ints and numpy alone.

It can be driven without a model: by property tests, by a simulator, by the author of a policy.
"""
