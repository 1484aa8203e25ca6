"""Runs modules that keep states, such as convolutions and recurrences, on the packed row of a step."""
