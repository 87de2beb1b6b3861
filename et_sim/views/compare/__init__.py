"""Two runs side by side: what changed, and by how much."""
