"""From prompts to text: what runs for one client request, and work on long texts outside the event loop."""
