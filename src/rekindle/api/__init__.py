"""The HTTP API over a store, for machines that have no access to its database; and its client."""
