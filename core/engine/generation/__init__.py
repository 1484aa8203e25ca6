"""The engine that generates: its loop, the objects that the loop uses, and their construction from the
settings."""
