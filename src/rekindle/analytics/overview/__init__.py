"""What people ask of their sessions: time, cost, and what keeps failing."""
