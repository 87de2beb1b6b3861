"""Serving requests: which batches replicas of a model work on, and when every request gets its tokens.

How long a batch takes comes from simulating its forward pass (`replicas`); everything else is decided between
two passes, by rules that need no simulation. Not here: what a forward pass does
(`et_sim.workloads.inference`).
"""
