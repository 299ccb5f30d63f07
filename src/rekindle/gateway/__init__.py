"""The gateway: receives chat messages, runs turns and commands, and sends the answers."""
