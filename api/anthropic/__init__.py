"""Anthropic's Messages API: translates its requests into chats, and the answers of chats into its replies."""
