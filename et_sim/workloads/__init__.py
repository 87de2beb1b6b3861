"""Workloads made from a program: named axes of ranks, and what each rank does, line by line."""

from et_sim.workloads.axes import Axes
from et_sim.workloads.job import make_workload
from et_sim.workloads.rank import Rank

__all__ = ["Axes", "Rank", "make_workload"]
