"""Times of kernels without a plan: those that lowering gives them where all ranks are equal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from et_sim.compute import compute_model, kernel_times
from et_sim.machine.model import Machine
from et_sim.trace.columns import Trace


def times_of_kernels(machine: Machine) -> Callable[[Trace], Any]:
    """Return a function of a trace of kernels to the nanoseconds of each, on any rank of a machine."""
    times = kernel_times(compute_model(machine.system))
    return lambda trace: times(trace, np.arange(len(trace)), 0)


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
