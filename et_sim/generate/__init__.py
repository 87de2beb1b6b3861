"""Workloads that are made, not recorded: microbenchmarks, training of a transformer, the demonstration."""

PROFILE = "corrected"  # what is made here has no results of the reference to repeat
