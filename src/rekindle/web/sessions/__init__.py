"""The list of sessions: filters, rows, search, and what can be done with a session."""
