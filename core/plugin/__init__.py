"""Declares the hooks, loads and configures plugins, and isolates failures of their components."""
