"""Output of commands: tables as wide as the terminal, and tab-separated rows for pipes."""
