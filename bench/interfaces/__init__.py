"""Interfaces as users and agents see them: picker, web pages and hooks."""
