"""Files that people write: how large they may be, what kind they are, their JSON."""
