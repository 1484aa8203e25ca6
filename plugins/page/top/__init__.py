"""`llmfw top`: the figures and the requests of a running server in a terminal, from the stream of the page's view Watch."""
