"""What runs beside live requests, in batches and in background responses, and how much of it at a time."""
