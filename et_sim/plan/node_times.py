"""Times of nodes outside a plan: what lowering gives kernels of a trace on a machine without stragglers."""

from __future__ import annotations

from typing import Any

from et_sim.compute import compute_model
from et_sim.machine.model import Machine
from et_sim.memory import memory_model
from et_sim.plan.kernel_table import KernelPrices
from et_sim.plan.nodes import NodeRules, lower_nodes
from et_sim.trace.columns import Trace
from et_sim.trace.stack import stack_of


class NodeTimes:
    """The times of nodes on the ranks of a machine, which are equal on all of them (`are_plain`)."""

    def __init__(self, machine: Machine) -> None:
        self._rules = NodeRules(machine.system, compute_model(machine.system), memory_model(machine))

    def of(self, trace: Trace) -> Any:
        """Return the nanoseconds of each node of a trace."""
        nodes = lower_nodes(stack_of([trace]), self._rules, KernelPrices(), 0, trace.source)
        return nodes["duration_ns"]


def are_plain(machine: Machine) -> bool:
    """Return whether the time of a kernel depends neither on its rank nor on its name."""
    system = machine.system
    wheres = [rule.where for rule in system.compute if rule.where is not None]
    return (
        not system.stragglers
        and not system.time_factors
        and not system.host_ns
        and all(where.name is None and where.regex is None and where.ranks is None for where in wheres)
    )
