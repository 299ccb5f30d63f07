"""What patterns are made of: the form of a call, its slots, what mended an error, what is alike."""
