"""The engine process: scheduler, prefix cache, model, sampler. Knows token ids, not text, and nothing of HTTP."""
