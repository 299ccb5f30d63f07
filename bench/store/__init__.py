"""The store against raw SQLite and against other frameworks' stores."""
