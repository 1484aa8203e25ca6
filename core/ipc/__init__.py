"""Child processes: how llmfw starts them, their environment, and the format of messages to and from them."""
