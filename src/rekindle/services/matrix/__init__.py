"""A Matrix home server of the user's own: Synapse with PostgreSQL, without containers."""
