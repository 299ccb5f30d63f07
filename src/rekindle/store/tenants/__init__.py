"""Tenants in the database: their directory, their tables in PostgreSQL, and a person's data."""
