"""The commands of `llmfw`, one module each.

At import, the modules load only click and light modules of the core. Each command imports the rest when it
runs.
"""
