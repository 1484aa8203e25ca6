"""OpenAI's completions: prompts as they are given, continued, filled in or scored."""
