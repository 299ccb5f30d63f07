"""The words of messages on PostgreSQL: their vectors, and searches through ranges of messages."""
