"""The files of a checkpoint: small JSON files, the index of its shards, and the tensors that its files hold."""
