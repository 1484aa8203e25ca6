"""What the author of a component implements, and the data that it is given. Nothing else of llmfw is needed to write one.

Authors import all of it from `llmfw.core`.
"""
