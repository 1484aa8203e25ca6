"""Runs one planned step on a device: numbers to tensors, the forward pass, logits, sampling. Decides nothing."""
