"""Output of commands: tables that fit the terminal, and tab-separated rows for pipes."""
