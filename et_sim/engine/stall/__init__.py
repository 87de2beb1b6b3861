"""Explanations of stalls: which ranks wait for which, and what is missing."""

from et_sim.engine.stall.explain import Stall, explain_stall

__all__ = ["Stall", "explain_stall"]
