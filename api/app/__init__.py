"""The server: binds the port, starts the engine process, and serves the HTTP application until a signal."""
