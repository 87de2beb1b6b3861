"""Chunks, queues, steps and trees of collectives, and how their messages are matched."""
