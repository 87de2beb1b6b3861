"""Waiting: how long communication waits for other ranks, and for which."""
