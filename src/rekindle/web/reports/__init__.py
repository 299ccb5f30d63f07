"""What the pages of reliability and experiments show, computed off the requests."""
