"""What the pages about the gateway show, and what its operator can change there."""
