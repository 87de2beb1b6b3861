"""Observers of a run: causes, traffic, phases, ties."""
