"""Scheduled jobs: prompts and commands that run by themselves."""
