"""Serving requests: the batches of a model's replicas, and the times at which requests get their tokens.

The time of a batch comes from simulating its forward pass (`replicas`); everything else is decided between
two passes, by rules that need no simulation.
"""
