"""Systolic arrays, as SCALE-Sim times them."""
