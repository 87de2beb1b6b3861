"""How long local work takes: replay of recorded times, roofline, reductions. Pure functions."""

from et_sim.compute.reduction import reduction_ns
from et_sim.compute.replay import replay_ns
from et_sim.compute.roofline import Roofline, Utilisation

__all__ = ["Roofline", "Utilisation", "reduction_ns", "replay_ns"]
