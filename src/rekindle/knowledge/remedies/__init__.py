"""Remedies of failures that are the same in every project."""
