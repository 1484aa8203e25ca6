"""The bodies of requests and replies, as msgspec Structs. They know nothing of the engine.

In replies `UNSET` leaves a key out and None writes null: which of the two a client expects differs by field.
"""
