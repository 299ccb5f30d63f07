"""Services: keep a Rekindle command running with the user's service manager."""
