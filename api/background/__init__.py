"""Work in addition to live requests (batches and background responses), and the limit on how much runs at a time."""
