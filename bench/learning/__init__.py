"""Judging, redaction, learning and recall: their quality and their cost."""
