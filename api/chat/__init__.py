"""Chat completions: renders messages as a prompt, and parses the output.

An output has content, tool calls and reasoning.
"""
