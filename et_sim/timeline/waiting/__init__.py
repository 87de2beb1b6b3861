"""How long communication waits for other ranks, and for whom."""
