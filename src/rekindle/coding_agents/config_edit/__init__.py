"""Edit the configuration files of other programs as text, so that nothing else in them changes."""
