"""The bodies of requests and replies, as msgspec Structs.

In replies, a field that is `UNSET` is omitted, and a field that is None is null. Some fields must be omitted
and others must be null, because clients expect it so.
"""
