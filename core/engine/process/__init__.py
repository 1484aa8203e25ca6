"""The engine process: builds the engine that a model needs, and connects it with its clients."""
