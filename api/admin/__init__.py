"""Administration of a running server: scheduling policy, prefix cache, pinned prefixes and request traces."""
