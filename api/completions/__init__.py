"""OpenAI's completions API: continues, fills in or scores prompts."""
