"""Crash reports: what is written when an engine or the server ends unexpectedly, and how it is bounded."""
