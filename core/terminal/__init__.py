"""What commands print: tables as wide as the terminal, and tab-separated rows for pipes."""
