"""Which token comes next: from logits, by what a request asks for, with randomness that hangs on seed and position."""
