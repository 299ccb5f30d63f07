"""Damaged and hostile transcripts for every reader."""
