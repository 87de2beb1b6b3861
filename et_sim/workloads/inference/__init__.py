"""Inference: forward passes over prompts and, with a cache of keys and values, over single tokens."""
