"""The engine: what runs in the engine process. Knows token ids, not text, and nothing of HTTP."""
