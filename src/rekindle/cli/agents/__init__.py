"""Install Rekindle into other agents, remove it again, and check on it."""
