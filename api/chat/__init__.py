"""Chat completions: renders messages as a prompt, and parses content, calls and reasoning from the output."""
