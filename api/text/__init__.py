"""Generates text for one client request, and tokenizes long texts outside the event loop."""
