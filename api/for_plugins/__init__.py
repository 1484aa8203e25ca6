"""The interface to the server for plugins' routes: answers requests as the server's own routes do."""
