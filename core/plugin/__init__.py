"""Plugins: hooks, and code that finds, loads and configures plugins and isolates failures of their
components."""
