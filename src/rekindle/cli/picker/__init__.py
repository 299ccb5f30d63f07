"""The picker that `rekindle` alone opens: find a session and resume it."""
