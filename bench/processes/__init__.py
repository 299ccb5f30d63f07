"""Background processes and the sandbox."""
