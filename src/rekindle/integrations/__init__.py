"""Sessions for other frameworks: each module fits one of them, and is loaded only by its users."""
