"""Batching policies, a module for each; `et_sim.serving.batcher.POLICIES` is their registry."""
