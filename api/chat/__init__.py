"""Chat completions: messages become a prompt, and what is generated an answer, calls and thinking."""
