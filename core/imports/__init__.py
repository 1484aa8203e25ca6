"""Imports libraries without those of their modules that serving never uses."""
