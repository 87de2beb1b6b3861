"""Recipes: workloads described by the options that make them, for sweeps and long jobs."""
