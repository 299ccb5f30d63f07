"""A server that is killed while many agents push to it."""
