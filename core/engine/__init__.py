"""The engine: everything that runs in the engine process.

Works with token ids, not text. Independent of HTTP.
"""
