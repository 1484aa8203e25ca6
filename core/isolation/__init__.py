"""What keeps a broken plugin's fault its own: loading it, calling it, counting what it costs."""
