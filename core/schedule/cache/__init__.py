"""The prefix cache: which pages hold which prefixes, and which are evicted first. Does not use torch."""
