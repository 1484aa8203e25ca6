"""The interfaces that authors of components implement, and the data that these interfaces use.

Authors import all of these names from `llmfw.core`. A component needs no other names of llmfw.
"""
