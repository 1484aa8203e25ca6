"""Crash reports: written when an engine or the server ends unexpectedly, and limited in number and size."""
