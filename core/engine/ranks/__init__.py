"""The processes of an engine that computes a model on several ranks (`--tp`): their start, messages and end."""
