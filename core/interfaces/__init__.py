"""The interfaces that the author of a component implements, and their data. A component needs nothing else of llmfw.

Authors import all of it from `llmfw.core`.
"""
