"""Long runs that try to lose data by killing processes. Run `python -m soak --help`."""
