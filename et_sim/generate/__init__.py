"""Workloads that are made, not recorded: microbenchmarks, training of a transformer, the demonstration."""
