"""The shutdown of a server: refuses new requests, and waits for running requests."""
