"""From prompts to text: what runs for one client request, and work on long texts beside the event loop."""
