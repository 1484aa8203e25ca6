"""Imports libraries without the parts that serving never uses."""
