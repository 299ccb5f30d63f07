"""What became of stored calls and sessions, judged once and kept."""
