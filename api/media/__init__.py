"""Images in requests: where they come from, what is accepted, and how they reach the model's processor."""
