"""Lowering: workload x machine -> flat integer tables of what must happen."""

from et_sim.plan.lowering import build_plan
from et_sim.plan.records import LoweredPlan

__all__ = ["LoweredPlan", "build_plan"]
