"""The server: binds the port, starts the engine process, and serves HTTP until a signal stops it."""
