"""The names of the backends that `python -m bench integrations` compares."""

FULL, RELAXED, PLAIN = "rekindle", "rekindle, relaxed", "rekindle, sessions=False"
FILES, FLUSHED_FILES = "FileSessionManager", "FileSessionManager, flushed"
JSON_TABLE = "table of JSON"
