"""The engine that generates: its loop, the objects of the loop, and their construction from the settings."""
