"""The engine: everything that runs in the engine process. Knows token ids, not text, and nothing of HTTP."""
