"""OpenAI's Responses API: built on chat completions, with a memory."""
