"""What settings may be, and how that is checked."""
