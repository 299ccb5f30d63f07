"""Gateways that are killed during conversations and scheduled jobs."""
