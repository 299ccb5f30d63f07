"""Checkpoints of graph frameworks: opaque values by thread, namespace and version."""
