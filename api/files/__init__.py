"""Files that clients upload, whole or in parts, and download."""
