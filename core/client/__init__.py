"""The API's clients of an engine, which runs in the same process or in its own."""
