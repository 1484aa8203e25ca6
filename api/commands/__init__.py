"""The commands of `llmfw`, one module each. They import click and light parts of core until they run."""
