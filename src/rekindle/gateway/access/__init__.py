"""Who may talk to the gateway, and how much."""
