"""Builds the services that answer requests, for the HTTP application or for a batch run without one."""
