"""What the agent remembers for each owner: facts, tool, command, and flush before a reset."""
