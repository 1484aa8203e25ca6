"""Scheduling: chooses the sequences of each step, their pages, shared prefixes and drafts.

The scheduler uses neither tensors nor a model, so property tests, the simulator and policy authors can drive
it with integers and numpy alone.
"""
