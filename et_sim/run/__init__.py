"""One run: its options, the simulation, variants of it, and its result."""
