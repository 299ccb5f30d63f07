"""Long runs that try to make the store lose something. Each has its own command: `python -m soak`."""
