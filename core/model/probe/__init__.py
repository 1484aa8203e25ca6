"""Learns by running a model how its layers use attention, positions and states, and refuses what llmfw cannot serve."""
