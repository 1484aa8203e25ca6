"""Chat completions: converts messages to a prompt, and the output to an answer, tool calls and thinking."""
