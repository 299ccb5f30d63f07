"""The agent: its model client, its tools, and the turn loop."""
