"""The model of the warm-start benchmark and the servers that can run it."""
