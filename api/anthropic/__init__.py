"""Anthropic's Messages API: translates its requests into chat requests, and the answers into its replies."""
