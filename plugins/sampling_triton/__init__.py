"""Sampling in Triton kernels: temperature, top_k, top_p and min_p without sorting, in a few passes over the logits."""
