"""The server: takes the port, starts the engine process, and serves the HTTP application until it is told to end."""
