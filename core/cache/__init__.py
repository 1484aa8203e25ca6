"""The prefix cache: pages of keys and values, which prefixes are in them, and what goes first. Ints and numpy alone."""
