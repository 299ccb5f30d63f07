"""The task sets of the warm-start benchmark and their made-up worlds."""
