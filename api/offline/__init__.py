"""A file of requests, run to its end without a server. A crash or Ctrl-C costs nothing: it goes on where it was."""
