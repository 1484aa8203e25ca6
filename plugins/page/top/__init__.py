"""`llmfw top`: shows a running server's figures and requests in a terminal.

Reads the stream of the page's view Watch.
"""
