"""The engine that embeds: each request is a prompt, each answer a vector."""
