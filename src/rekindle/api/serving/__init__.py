"""The server: check requests, do what they ask for, keep stores and pushed transcripts."""
