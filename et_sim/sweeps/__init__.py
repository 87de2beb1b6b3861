"""Sweeps: one run with some of its fields varied, every point evaluated once, and a table of all of them."""
