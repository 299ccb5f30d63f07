"""Notes: statements about a project, learned from its sessions and recalled in later ones."""
