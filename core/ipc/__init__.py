"""What processes say to each other: messages as msgpack over a socket pair, and the environment that a child process gets."""
