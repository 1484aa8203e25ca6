"""Tensor parallelism: computes a model on several processes, the ranks, each with a shard of its weights."""
