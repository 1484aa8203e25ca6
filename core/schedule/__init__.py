"""Scheduling without tensors: chooses which sequences run, their pages, shared prefixes and drafts.

The scheduler needs no model: property tests, the simulator and policy authors drive it with integers and
numpy alone.
"""
