"""The server's figures as monitoring systems read them."""
