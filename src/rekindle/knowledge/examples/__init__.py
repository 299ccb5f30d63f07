"""Examples: requests that one command of the project closed, with made-up values."""
