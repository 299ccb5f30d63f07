"""Watching: import what agents write as it grows, and learn from it when it rests."""
