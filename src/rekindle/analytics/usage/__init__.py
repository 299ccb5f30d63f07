"""What sessions used and what that cost."""
