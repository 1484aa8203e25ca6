"""Files that clients upload, as one form or in parts, and read again."""
