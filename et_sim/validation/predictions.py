"""Predictions for the rows of a table: kernels by the machine's compute model, the rest by simulation.

The module also selects the preset machine for the hardware that a table names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np
from msgspec import Struct, structs
from msgspec.structs import replace

from et_sim.api import simulate
from et_sim.basics.errors import EtSimError
from et_sim.basics.uncertainty import Composition
from et_sim.compute.registry import at_full_clock, compute_model, kernel_times
from et_sim.machine.accuracy import HOST, Accuracy
from et_sim.machine.datatypes import datatype_named
from et_sim.machine.engine_kernels import with_engine_kernels
from et_sim.machine.presets import Preset, known_as, preset
from et_sim.machine.readers import read_system_alone
from et_sim.run.workers import in_order
from et_sim.trace import TraceBuilder
from et_sim.trace.workload import Workload
from et_sim.validation.launching import launches_us, with_launches
from et_sim.validation.networks import machine_measured, node_of, nodes_in_words
from et_sim.validation.row import Collective, KernelRow, Row, TrainingStep
from et_sim.workloads import make_training
from et_sim.workloads.microbenchmarks import make_microbenchmark
from et_sim.workloads.training.value_types import check_peaks, fields_of_machine

POWER, POWER_CAP = "power", "power-cap"  # keys of the object `compute`
OTHER_BOARDS = {"pci": r"PCI", "nvl": r"NVL(?!INK)"}  # boards of GPUs with the same name


def machine_named(hardware: str) -> str | None:
    """Return the preset whose words are all in the text, the one with the most letters, or None."""
    text = re.sub(r"(\d) ?GB?\b", r"\1GB", hardware.upper().replace("_", "-"))
    best = ""
    machine = None
    for name, words in known_as().items():
        letters = "".join(words)
        forms = [word.replace(" ", "[ -]") for word in words]
        stand = all(re.search(rf"(?<![A-WYZ]){form}(?![0-9A-Z])", text) for form in forms)
        if words and stand and len(letters) > len(best) and not _is_of_other_board(name, text):
            best, machine = letters, name
    return machine


def _is_of_other_board(name: str, text: str) -> bool:
    """Check whether the text names another board than the machine has, for a GPU with the same name."""
    boards = [word for word, board in OTHER_BOARDS.items() if word not in name and re.search(board, text)]
    if boards == ["pci"]:
        return bool(preset(name).system.get("library", {}).get("link") != "PCI")
    return bool(boards)


SPREAD = ("all_gather", "gather", "scatter")  # collectives whose bytes count all ranks together


class Prediction(Struct, frozen=True):
    """The prediction for a row; without a time, `how` is the reason."""

    row: Row
    machine: str | None
    predicted_us: float | None
    how: str
    band_us: tuple[float, float] | None = None  # None: the machine has no accuracy
    composition: Mapping[str, Any] | None = None  # basis of the band, as in summaries

    @property
    def is_in_band(self) -> bool | None:
        """Check whether the measured time is in the band; None: there is no band."""
        if self.band_us is None or self.row.measured_us is None:
            return None
        return self.band_us[0] <= self.row.measured_us <= self.band_us[1]

    @property
    def ratio(self) -> float | None:
        """Return predicted time by measured time."""
        measured = self.row.measured_us
        return None if self.predicted_us is None or measured is None else self.predicted_us / measured


def predictions(
    rows: Sequence[Row], machine: str | None = None, changes: Mapping[str, Any] = MappingProxyType({})
) -> Iterator[Prediction]:
    """Yield a prediction for each row, in order.

    `machine` overrides the machines of tables, and `changes` are keys that override those of its system.
    Simulations run in parallel, and equal ones once.
    """
    named = cache(machine_named)
    own = [row.machine or named(row.hardware) for row in rows]
    machines = [machine or name for name in own]
    rows = [
        on_machine(row, name, other) if name else row
        for row, name, other in zip(rows, machines, own, strict=True)
    ]
    tasks: dict[Any, int] = {}  # index of each in order of first use
    last: dict[Any, int] = {}
    runs: list[tuple[Row, str]] = []
    for number, (row, name) in enumerate(zip(rows, machines, strict=True)):
        if name and isinstance(row.job, Collective | TrainingStep):
            key = _same(row, name)
            if key not in tasks:
                tasks[key] = len(runs)
                runs.append((row, name))
            last[key] = number
    simulations = in_order(_simulating, dict(changes), runs)
    done: dict[Any, Prediction] = {}
    kernels = cache(_KernelTimes)
    for number, (row, name) in enumerate(zip(rows, machines, strict=True)):
        if row.job is None:
            yield Prediction(row, None, None, row.why)
        elif name is None:
            unknown = row.hardware or "unnamed hardware"
            yield Prediction(row, None, None, f"no preset for {unknown} (name one with --machine)")
        elif isinstance(row.job, KernelRow):
            yield kernels(name, row.job.engine).prediction(row, row.job)
        else:
            key = _same(row, name)
            if key not in done:
                done[key] = next(simulations)
            same = done[key]
            if last[key] == number:
                del done[key]
            yield structs.replace(same, row=row)


def _same(row: Row, name: str) -> tuple[Any, ...]:
    """Return a key that is equal for rows with the same simulation."""
    job = row.job
    if isinstance(job, TrainingStep):
        return name, row.network, job.model, job.plan, job.software, job.power, job.is_kept
    return name, row.network, job


def _simulating(changes: Mapping[str, Any]) -> Callable[[tuple[Row, str]], Prediction]:
    """Return the function of a worker process, which predicts a row on a machine.

    An error in one row, even a defect of et-sim, does not end the others.
    """

    def predict(task: tuple[Row, str]) -> Prediction:
        row, name = task
        try:
            return _simulated(row, name, changes)
        except EtSimError as error:
            return Prediction(row, name, None, str(error))
        except Exception as error:
            return Prediction(row, name, None, f"a defect of et-sim: {type(error).__name__}: {error}")

    return predict


class _KernelTimes:
    """The times of single kernels on a machine."""

    def __init__(self, name: str, engine: str = "") -> None:
        self._name = name
        self._times: Callable[..., Any] | None = None
        self._accuracy: Accuracy | None = None
        self._why = ""
        try:
            system = read_system_alone(preset(name).system)
            system = with_engine_kernels(system, engine) if engine else system
            model = compute_model(at_full_clock(system))  # measured one by one, too short for a power cap
            self._times, self._accuracy = kernel_times(model), system.accuracy
        except EtSimError as error:
            self._why = str(error)

    def prediction(self, row: Row, job: KernelRow) -> Prediction:
        """Return the prediction for a row."""
        if self._times is None:
            return Prediction(row, self._name, None, self._why)
        try:
            build = TraceBuilder(source=f"kernel on {self._name}")
            for part in job.parts:
                size = part.bytes or None
                build.compute(
                    "kernel", layer_shape=part.shape, dtype=part.datatype or None, tensor_bytes=size
                )
            time_ns = int(self._times(build.build(), np.arange(len(job.parts)), 0).sum())
        except EtSimError as error:
            return Prediction(row, self._name, None, str(error))
        datatype = datatype_named(job.datatype) or ""
        stated = None if self._accuracy is None else self._accuracy.of_kernel_alone(job.shape, datatype)
        return _banded(row, self._name, time_ns, "modelled", stated)


def _banded(row: Row, name: str, time_ns: int, how: str, composition: Composition | None) -> Prediction:
    """Return a prediction with its band."""
    if composition is None:
        return Prediction(row, name, time_ns / 1000, how)
    low, high = composition.band(time_ns)
    return Prediction(row, name, time_ns / 1000, how, (low / 1000, high / 1000), composition.as_dict())


def _simulated(row: Row, name: str, changes: Mapping[str, Any]) -> Prediction:
    job: Any = row.job
    if isinstance(job, Collective):
        workload = _collective(job, job.bytes)
        measured = machine_measured(name, job.gpus, job.nodes, row.hardware, row.network)
    else:
        workload = make_training(job.model, job.plan)
        nodes = nodes_in_words(row.hardware, job.plan.ranks)
        measured = machine_measured(name, job.plan.ranks, nodes, row.hardware, row.network)
    known = preset(measured.text)
    accuracy = {**known.system["accuracy"], **measured.accuracy}
    must_fit = (
        isinstance(job, TrainingStep) and job.is_kept
    )  # on its own machine, the measured job has fitted
    system = {
        **known.system,
        "accuracy": accuracy,
        **({} if must_fit else {"when-full": "report"}),
        **changes,
    }
    if isinstance(job, TrainingStep) and job.power and POWER in system["compute"]:
        system["compute"] = {**system["compute"], POWER_CAP: job.power}
    if isinstance(job, Collective) and job.algorithm and "library" in system:
        system["library"] = {**system["library"], "algorithms": [job.algorithm]}
    if isinstance(job, Collective) and "library" in system:
        system["library"] = {**system["library"], **_exchanges_of(job)}
    result = simulate(workload, machine=known.text, system=system)
    composition = result.measurement.composition
    if isinstance(job, TrainingStep) and composition is not None and workload.step is not None:
        # Unnamed software is an assumption, even if a description replaces it.
        traits = _accuracy(name).traits(workload.step.kinds, job.software)
        composition = structs.replace(composition, traits=traits)
    time_ns = result.makespan_ns
    if isinstance(job, Collective) and job.gpus_per_process > 1:
        of_process = min(job.gpus_per_process, known.node)
        least_ns = simulate(_collective(job, job.gpus), machine=known.text, system=system).makespan_ns
        waits_ns = max(round(1000 * launches_us(job.kind, job.gpus, of_process)) - least_ns, 0)
        time_ns += waits_ns
        if composition is not None and waits_ns:
            composition = with_launches(composition, waits_ns / time_ns, _accuracy(name).terms[HOST])
    return _banded(row, name, time_ns, f"simulated on {known.text}", composition)


def _collective(job: Collective, size: int) -> Workload:
    """Return the collective of a row, with another number of bytes."""
    size = size // job.gpus if job.kind in SPREAD else size
    datatype = datatype_named(job.datatype) or ""
    return make_microbenchmark(job.kind, ranks=job.gpus, size=max(size, 1), dtype=datatype)


def _exchanges_of(job: Collective) -> dict[str, Any]:
    """Return the keys of a library for the exchanges of an engine."""
    given = {"engine": job.engine, "eager": int(job.eager), "expert-exchange": job.expert_exchange}
    given["most-processors"] = job.processors
    return {name: value for name, value in given.items() if value}


@cache
def _accuracy(name: str) -> Accuracy:
    accuracy = read_system_alone(preset(name).system).accuracy
    assert accuracy is not None  # presets have one
    return accuracy


def on_machine(row: Row, name: str, own: str | None) -> Row:
    """Return the row of a step for a machine by name; `own` is the machine of its hardware, if known.

    A step keeps its plan on a machine that differs from its own, but for the fields that a machine decides.
    Then remarks state that, and the plan must fit the memory there; on its own machine, the measured step has
    fitted.
    """
    job = row.job
    if not isinstance(job, TrainingStep):
        return row
    try:
        machine = _preset(name)
        node = node_of(name, job.plan.ranks) if job.plan.expert > 1 else job.plan.node_ranks
        decided = fields_of_machine(node, machine.peaks, {"value_bytes": job.plan.value_bytes})
        plan = replace(job.plan, **decided)
        check_peaks(plan.values, plan.cast_to, machine.peaks, name)
    except EtSimError as error:
        return structs.replace(row, job=None, why=str(error))
    is_kept = own is not None and _differs(machine, own)
    remarks = [f"bf16, which {name} lacks: values are {plan.value_type}"] if plan.value_type else []
    if is_kept:
        remarks.append(f"a plan for {name}: that of {row.hardware} is kept")
    if is_kept and job.power:
        remarks.append(f"the limit of {job.power}, which is that of {row.hardware}")
    adapted = structs.replace(job, plan=plan, is_kept=is_kept, power="" if is_kept else job.power)
    return structs.replace(row, job=adapted, remarks=(*row.remarks, *remarks))


def _differs(machine: Preset, own: str) -> bool:
    """Check whether machines differ in their devices, or in the number of them on a node.

    A calibrated file of a machine has its device.
    """
    try:
        return _traits(machine) != _traits(_preset(own))
    except EtSimError:  # a name that is not known
        return True


def _traits(machine: Preset) -> tuple[str, int]:
    return machine.system["accuracy"]["device"], machine.node


_preset = cache(preset)
