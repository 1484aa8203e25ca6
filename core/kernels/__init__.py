"""Triton kernels, and rules for them, that several components use. Import them only where Triton is installed."""
