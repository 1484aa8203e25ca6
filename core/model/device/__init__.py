"""The device that a model is served on: its memory, its instructions, and the dtype that suits it."""
