"""What users, operators and monitoring programs learn about the gateway's work and its errors."""
