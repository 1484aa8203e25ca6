"""The server's figures in the formats of monitoring systems."""
