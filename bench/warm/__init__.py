"""The benchmark with a real model: do warm starts help, and by how much?"""
