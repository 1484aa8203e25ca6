"""The end of a server: refuses new requests, and waits for those that run."""
