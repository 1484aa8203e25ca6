"""The bodies of requests and replies, as msgspec Structs. They know nothing of the engine.

In replies, `UNSET` omits a key and None writes null: clients expect one or the other, depending on the field.
"""
