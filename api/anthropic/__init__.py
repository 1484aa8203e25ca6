"""Anthropic's Messages API, by translation: its request becomes a chat's, and a chat's answer its reply."""
