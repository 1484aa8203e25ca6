"""Definitions that all other packages of the core use: errors, settings, messages, log and ids.

Imports no other package of the core.
"""
