"""Imports libraries without the modules that serving never uses."""
