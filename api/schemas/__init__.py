"""The bodies of requests and replies, as msgspec Structs.

In replies, `UNSET` omits a key and None writes null. Which of the two clients expect differs by field.
"""
