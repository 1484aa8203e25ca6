"""What core does with plugins' parts beside finding them: whose they are, what options they are given, what they prepare. No torch here."""
