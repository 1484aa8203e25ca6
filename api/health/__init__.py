"""Whether the engine works: asked of the engine itself."""
