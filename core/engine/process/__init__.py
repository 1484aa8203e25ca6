"""The engine process: builds the engine that a model needs, and exchanges messages with its clients."""
