"""Measures the store against raw floors and against peers. Run `python -m bench --help`."""
