"""What users ask for always, never, or again and again."""
