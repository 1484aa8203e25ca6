"""The command line and the HTTP server. Imports `llmfw.core` only; plugins reach it through the registry."""
