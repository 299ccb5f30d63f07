"""The agent: the model it asks, what it may send, and the turn."""
