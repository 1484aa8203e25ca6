"""The engine that generates: its loop, its parts, and how they are built from the settings."""
