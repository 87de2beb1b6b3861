"""Skipping of periods of collectives that only repeat, all at once."""
