"""What is learned from sessions. Pure: no files, no clock, no randomness."""
