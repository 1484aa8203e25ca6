"""The prefix cache: pages of keys and values, which prefixes are in them, and which are evicted first. No torch."""
