"""What the pages of projects show."""
