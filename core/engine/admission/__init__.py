"""What happens to a request in the engine before it is scheduled: checks, a full queue, its place in it, its timeout. No tensors."""
