"""What an administrator may see and change while the server runs."""
