"""What the routes of plugins use of the server: its own answers, without a connection."""
