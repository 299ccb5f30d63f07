"""How often calls fail, from counts that are held in memory for quick answers."""
