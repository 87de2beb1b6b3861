"""Issue and completion of nodes."""
