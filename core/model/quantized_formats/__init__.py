"""Reads checkpoints whose layers are quantized, by a plugin's quantized format."""
