"""What a model folder says of its tokenizer, and the bytes behind each of its tokens."""
