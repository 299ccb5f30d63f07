"""Follow the output of background processes for pages."""
