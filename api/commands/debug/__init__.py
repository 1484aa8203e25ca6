"""`llmfw debug`: commands for debugging llmfw itself."""
