"""Folding: ranks that provably behave identically are simulated as one actor."""

from et_sim.fold.limits import TIE
from et_sim.fold.partition import fold

__all__ = ["TIE", "fold"]
