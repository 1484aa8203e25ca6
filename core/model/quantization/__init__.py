"""Weights of fewer bits: `--quantization`."""
