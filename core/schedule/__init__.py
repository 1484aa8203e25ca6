"""Scheduling without tensors: which sequences run, in which pages, what they share, and which tokens are guessed.

It needs no model: property tests, the simulator and the authors of policies drive it with integers and numpy alone.
"""
