"""OpenAI's Responses API: chat completions with stored conversations."""
