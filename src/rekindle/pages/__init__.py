"""What every HTML page of Rekindle shares: one set of colors, fonts and spaces, and one head."""
