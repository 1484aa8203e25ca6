"""Runs a file of requests without a server. After a crash or Ctrl-C, the next run continues without loss."""
