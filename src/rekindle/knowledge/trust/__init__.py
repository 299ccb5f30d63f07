"""What of a transcript may be advice."""
