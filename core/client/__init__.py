"""The API's side of the engine: in the same process, or over sockets."""
