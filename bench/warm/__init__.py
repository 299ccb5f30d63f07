"""The proof with a real model: do warm starts help, and by how much?"""
