"""Communication between processes: messages as msgpack over a socket pair, and the environment of a child
process."""
