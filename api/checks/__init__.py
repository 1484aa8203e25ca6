"""Runs the conformance tests of installed components and routes, for `llmfw check`."""
