"""Serves a model by several engines: chooses an engine for each request, and sends commands to all of them."""
