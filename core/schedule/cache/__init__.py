"""The prefix cache: pages of keys and values, the prefixes in them, and the order of eviction. No torch."""
