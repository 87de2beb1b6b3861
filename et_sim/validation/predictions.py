"""What et-sim says to the rows of a table: kernels by the machine's compute model, the rest by simulation.

Which preset machine stands for the hardware that a table names is here too; not here: the machines
(`machine.presets`), and how far predictions are off (`rows`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.api import simulate
from et_sim.basics.errors import EtSimError
from et_sim.basics.uncertainty import Composition
from et_sim.compute.registry import at_full_clock, compute_model, kernel_times
from et_sim.machine.datatypes import datatype_named
from et_sim.machine.presets import known_as, preset
from et_sim.machine.readers import read_system_alone
from et_sim.run.workers import in_order
from et_sim.trace import TraceBuilder
from et_sim.validation.networks import machine_measured
from et_sim.validation.rows import Collective, Iteration, Kernel, Row
from et_sim.workloads import make_training
from et_sim.workloads.microbenchmarks import make_microbenchmark

OTHER_BOARDS = {"pci": r"PCI", "nvl": r"NVL(?!INK)"}  # of GPUs with the same name


def machine_named(hardware: str) -> str | None:
    """The preset whose words all stand in the text, the one with the most letters; None: there is none."""
    text = re.sub(r"(\d) ?GB?\b", r"\1GB", hardware.upper().replace("_", "-"))
    best = ""
    machine = None
    for name, words in known_as().items():
        letters = "".join(words)
        is_other = any(word not in name and re.search(board, text) for word, board in OTHER_BOARDS.items())
        stand = all(re.search(rf"(?<![A-WYZ]){word}(?![0-9A-Z])", text) for word in words)
        if words and stand and not is_other and len(letters) > len(best):
            best, machine = letters, name
    return machine


SPREAD = ("all_gather", "gather", "scatter")  # collectives whose bytes are those of all ranks together


class Prediction(Struct, frozen=True):
    """Of a row; None: there is none, and `how` says why."""

    row: Row
    machine: str | None
    predicted_us: float | None
    how: str
    band_us: tuple[float, float] | None = None  # None: the machine states nothing

    @property
    def is_in_band(self) -> bool | None:
        """Whether what was measured is in the band; None: there is none."""
        if self.band_us is None or self.row.measured_us is None:
            return None
        return self.band_us[0] <= self.row.measured_us <= self.band_us[1]

    @property
    def ratio(self) -> float | None:
        """Predicted by measured."""
        measured = self.row.measured_us
        return None if self.predicted_us is None or measured is None else self.predicted_us / measured


def predictions(
    rows: Sequence[Row], machine: str | None = None, changes: Mapping[str, Any] = MappingProxyType({})
) -> Iterator[Prediction]:
    """Of all rows, in their order; `machine` stands before what tables name, and `changes` are keys of its
    system that runs have besides. Simulations run beside each other."""
    named = cache(machine_named)
    kernels = _kernels(rows, machine, named)
    runs = [
        (row, name)
        for row in rows
        if isinstance(row.job, Collective | Iteration) and (name := machine or named(row.hardware))
    ]
    simulations = in_order(_simulating, dict(changes), runs)
    for number, row in enumerate(rows):
        name = machine or named(row.hardware)
        if row.job is None:
            yield Prediction(row, None, None, f"table {row.table} has no time of an iteration")
        elif name is None:
            unknown = row.hardware or "unnamed hardware"
            yield Prediction(row, None, None, f"no machine is known for {unknown} (--machine names one)")
        elif isinstance(row.job, Kernel):
            time = kernels[number]
            if isinstance(time, str):
                yield Prediction(row, name, None, time)
            else:
                yield Prediction(row, name, time[0] / 1000, "modelled", _band(time[1], time[0]))
        else:
            yield next(simulations)


def _simulating(changes: Mapping[str, Any]) -> Callable[[tuple[Row, str]], Prediction]:
    """What a process does with rows and the names of their machines."""

    def predict(task: tuple[Row, str]) -> Prediction:
        row, name = task
        try:
            return _simulated(row, name, changes)
        except EtSimError as error:
            return Prediction(row, name, None, str(error))

    return predict


def _kernels(
    rows: Sequence[Row], machine: str | None, named: Callable[[str], str | None]
) -> dict[int, tuple[int, Composition | None] | str]:
    """Nanoseconds by the number of the row and how far they may be off, or why there are none."""
    predicted: dict[int, tuple[int, Composition | None] | str] = {}
    by_machine: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        name = machine or named(row.hardware)
        if isinstance(row.job, Kernel) and name is not None:
            by_machine.setdefault(name, []).append(number)
    for name, numbers in by_machine.items():
        system = read_system_alone(preset(name).system)
        times = kernel_times(compute_model(at_full_clock(system)))  # measured one by one, for a moment
        for number in numbers:
            job: Any = rows[number].job
            try:
                build = TraceBuilder(source=f"kernel on {name}")
                shapes = (job.shape, *job.included)
                for shape in shapes:
                    build.compute(shape, layer_shape=shape, dtype=job.datatype or None)
                time_ns = int(times(build.build(), np.arange(len(shapes)), 0).sum())
                stated = system.accuracy
                datatype = datatype_named(job.datatype) or ""
                predicted[number] = (
                    time_ns,
                    None if stated is None else stated.of_kernel_alone(job.shape, datatype),
                )
            except EtSimError as error:
                predicted[number] = str(error)
    return predicted


def _band(composition: Composition | None, time_ns: int) -> tuple[float, float] | None:
    """In microseconds."""
    if composition is None:
        return None
    low, high = composition.band(time_ns)
    return low / 1000, high / 1000


def _simulated(row: Row, name: str, changes: Mapping[str, Any]) -> Prediction:
    job: Any = row.job
    if isinstance(job, Collective):
        size = job.bytes // job.gpus if job.kind in SPREAD else job.bytes
        workload = make_microbenchmark(
            job.kind, ranks=job.gpus, size=max(size, 1), dtype=datatype_named(job.datatype) or ""
        )
        measured = machine_measured(name, job.gpus, job.nodes, row.hardware, row.network)
    else:
        workload = make_training(job.model, job.plan)
        measured = machine_measured(name, job.plan.ranks, 0, row.hardware, row.network)
    known = preset(measured.text)
    accuracy = {**known.system["accuracy"], **measured.accuracy}
    system = {**known.system, "accuracy": accuracy, "when-full": "report", **changes}  # it had room
    if isinstance(job, Collective) and job.algorithm and "library" in system:
        system["library"] = {**system["library"], "algorithms": [job.algorithm]}
    result = simulate(workload, machine=known.text, system=system)
    band = _band(result.measurement.composition, result.makespan_ns)
    return Prediction(row, name, result.makespan_ns / 1000, f"simulated on {known.text}", band)
