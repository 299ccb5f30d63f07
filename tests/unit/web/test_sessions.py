"""The list of sessions: filters, pages, search, and text that is hostile."""
