"""What everything else may know: errors, settings, requests and controls as plain data, log and ids. Imports nothing of llmfw above it."""
