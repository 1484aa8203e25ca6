"""`llmfw batch`: manages batch jobs of a running server, and runs a file of requests without a server."""
