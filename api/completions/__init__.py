"""OpenAI's completions: continues, fills in or scores prompts as they are, without a chat template."""
