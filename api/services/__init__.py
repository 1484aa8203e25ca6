"""What answers requests, put together once, for the HTTP application or for a batch that runs without one."""
