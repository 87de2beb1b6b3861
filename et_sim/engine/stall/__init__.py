"""Why a run got stuck: who waits for whom, who should have provided it, and what came nearest."""

from et_sim.engine.stall.explain import Stall, explain_stall

__all__ = ["Stall", "explain_stall"]
