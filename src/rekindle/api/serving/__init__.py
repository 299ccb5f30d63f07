"""The server: check and execute requests, and manage stores and pushed transcripts."""
