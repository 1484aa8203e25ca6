"""The Triton kernels of sampling, and the functions that they share."""
