"""The gateway: latency, many conversations, Matrix rooms and scheduled jobs."""
