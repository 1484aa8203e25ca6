"""The engine that generates: its loop, its parts, and their construction from the settings."""
