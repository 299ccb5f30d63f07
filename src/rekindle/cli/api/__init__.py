"""`rekindle serve` and `rekindle push`: sessions of many machines in one store."""
