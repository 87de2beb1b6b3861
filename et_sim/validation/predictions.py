"""What et-sim says to the rows of a table: kernels by the machine's compute model, the rest by simulation.

Not here: which machine a row's hardware is (`machines`), and how far it is off (`errors`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.api import run
from et_sim.compute.kernel_times import kernel_times
from et_sim.compute.registry import compute_model
from et_sim.machine.presets import preset
from et_sim.machine.readers import read_system_alone
from et_sim.trace import TraceBuilder
from et_sim.validation.iterations import Iteration
from et_sim.validation.machines import machine_named, network_between
from et_sim.validation.rows import Collective, Kernel, Row
from et_sim.workloads import make_training
from et_sim.workloads.microbenchmarks import make_microbenchmark

SPREAD = ("all_gather",)  # collectives whose bytes are what a rank has at the end


@dataclass(frozen=True, slots=True)
class Prediction:
    """Of a row; None: there is no machine for its hardware."""

    row: Row
    machine: str | None
    predicted_us: float | None
    how: str


def predictions(
    rows: Sequence[Row], machine: str | None = None, watch: Callable[[int], None] = lambda _: None
) -> Iterator[Prediction]:
    """Of all rows, in their order; `machine` stands before what tables name."""
    kernels = _kernels(rows, machine)
    for number, row in enumerate(rows):
        name = machine or machine_named(row.hardware)
        if name is None:
            yield Prediction(row, None, None, f"no machine is known for {row.hardware or 'unnamed hardware'}")
        elif isinstance(row.job, Kernel):
            yield Prediction(row, name, kernels[number], "modelled")
        else:
            yield _simulated(row, name, row.job)
        watch(number + 1)


def _kernels(rows: Sequence[Row], machine: str | None) -> dict[int, float]:
    """Microseconds, by the number of the row; those of one machine at once."""
    found: dict[int, float] = {}
    by_machine: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        name = machine or machine_named(row.hardware)
        if isinstance(row.job, Kernel) and name is not None:
            by_machine.setdefault(name, []).append(number)
    for name, numbers in by_machine.items():
        build = TraceBuilder(source=f"kernels on {name}")
        for number in numbers:
            job: Any = rows[number].job
            build.compute(rows[number].what, layer_shape=job.shape, dtype=job.datatype or None)
        times = kernel_times(compute_model(read_system_alone(preset(name).system)))
        every = times(build.build(), np.arange(len(numbers)), 0)
        found |= {number: ns / 1000 for number, ns in zip(numbers, every.tolist(), strict=True)}
    return found


def _simulated(row: Row, name: str, job: Collective | Iteration) -> Prediction:
    if isinstance(job, Collective):
        size = job.bytes // job.gpus if job.kind in SPREAD else job.bytes
        workload = make_microbenchmark(job.kind, ranks=job.gpus, size=max(size, 1))
        npus = job.gpus
    else:
        workload, npus = make_training(job.model, job.plan), job.plan.ranks
    network = network_between(row.network, name, npus)
    how = "simulated" if network is None else f"simulated, {network['bandwidth'][-1]} a GPU between nodes"
    return Prediction(
        row, name, run(workload, machine=f"{name}:{npus}", network=network).makespan_ns / 1000, how
    )
