"""Options and output of commands: finite numbers, tables that fit the terminal, and tab-separated rows for pipes."""
