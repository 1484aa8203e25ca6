"""Weight quantization for `--quantization`."""
