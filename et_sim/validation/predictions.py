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
from msgspec import Struct, structs

from et_sim.api import simulate
from et_sim.basics.errors import EtSimError
from et_sim.basics.uncertainty import Composition
from et_sim.compute.registry import compute_model, kernel_times
from et_sim.machine.accuracy import Accuracy
from et_sim.machine.datatypes import datatype_named
from et_sim.machine.presets import Preset, entry, known_as, preset
from et_sim.machine.readers import read_system_alone
from et_sim.machine.roofline import SUSTAINED
from et_sim.run.workers import in_order
from et_sim.trace import TraceBuilder
from et_sim.validation.row import Collective, Iteration, Kernel, Row
from et_sim.workloads import make_training
from et_sim.workloads.microbenchmarks import make_microbenchmark

_RATE = r"(\d+(?:\.\d+)?)\s?G(?:b/s|bps|bit/s)"
_CARDS = re.compile(rf"(\d+)\s?[x\u00d7]\s?(?:[^;,\d]|ConnectX-\d|HDR|NDR)*?{_RATE}(?! each way)")
_WHOLE = re.compile(rf"(?<![\d,.x\u00d7]){_RATE} per node")
SERVER = 16  # NPUs that a server has at most: more share a rack's switches
POWER, POWER_CAP = "power", "power-cap"  # of the object `compute`
OTHER_BOARDS = {"pci": r"PCI", "nvl": r"NVL(?!INK)"}  # of GPUs with the same name


def machine_named(hardware: str) -> str | None:
    """Return the preset whose words all stand in the text, the one with the most letters; None: none."""
    text = re.sub(r"(\d) ?GB?\b", r"\1GB", hardware.upper().replace("_", "-"))
    best = ""
    machine = None
    for name, words in known_as().items():
        letters = "".join(words)
        stand = all(re.search(rf"(?<![A-WYZ]){word}(?![0-9A-Z])", text) for word in words)
        if words and stand and len(letters) > len(best) and not _is_of_other_board(name, text):
            best, machine = letters, name
    return machine


def _is_of_other_board(name: str, text: str) -> bool:
    """Return whether the text names another board than the machine has, of a GPU with the same name."""
    boards = [word for word, board in OTHER_BOARDS.items() if word not in name and re.search(board, text)]
    if boards == ["pci"]:
        return bool(preset(name).system.get("library", {}).get("link") != "PCI")
    return bool(boards)


def machine_of(name: str, npus: int, nodes: int | None = None) -> Preset:
    """Return a machine of so many NPUs, with as many of each node as the source says.

    Servers within a rack that NVLink joins are no nodes, and racks of which a source uses a share have that.
    """
    inside = entry(name).fewest
    in_node = npus // nodes if nodes else inside
    if inside > SERVER:
        in_node = npus // -(-npus // inside)
    options = f",node={in_node}" if in_node < inside and in_node < npus else ""
    return preset(f"{name}:{npus}{options}")


def network_between(text: str, machine: Preset) -> dict[str, Any] | None:
    """Return the preset's network with what the text says of the cards of a node; None: as the preset has it.

    A text that names several kinds of cards says nothing of one machine.
    """
    network = machine.network
    rails: dict[str, Any] = network.get("graph", {})
    whole, cards = _WHOLE.search(text), _CARDS.findall(text)
    is_between = len(network.get("npus_count", ())) > 1 or "npus-per-nic" in rails
    if not is_between or len(cards) > 1 or not (cards or whole):
        return None
    total = int(cards[0][0]) * float(cards[0][1]) if cards else float(whole[1] if whole else 0)
    if rails:
        ports = rails["npus-per-node"] // rails["npus-per-nic"]
        return {"graph": {**rails, "bandwidth": f"{total / 8 / ports:g}GB/s"}}
    share = total / network["npus_count"][0] / 8
    return {**network, "bandwidth": [*network["bandwidth"][:-1], f"{share:g}GB/s"]}


SPREAD = ("all_gather", "gather", "scatter")  # collectives whose bytes are those of all ranks together


class Prediction(Struct, frozen=True):
    """Of a row; None: there is none, and `how` says why."""

    row: Row
    machine: str | None
    predicted_us: float | None
    how: str
    band_us: tuple[float, float] | None = None  # None: the machine states nothing
    composition: Mapping[str, Any] | None = None  # that the band follows from, as summaries have it

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
    """Yield that of each row, in their order.

    `machine` stands before those that tables name, and `changes` are keys of its system that runs have
    besides. Simulations run beside each other, and equal ones once.
    """
    named = cache(machine_named)
    machines = [machine or row.machine or named(row.hardware) for row in rows]
    tasks: dict[Any, int] = {}  # the place of each in the order in which they are first needed
    last: dict[Any, int] = {}
    runs: list[tuple[Row, str]] = []
    for number, (row, name) in enumerate(zip(rows, machines, strict=True)):
        if name and isinstance(row.job, Collective | Iteration):
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
            yield Prediction(row, None, None, f"no machine is known for {unknown} (--machine names one)")
        elif isinstance(row.job, Kernel):
            yield kernels(name).prediction(row, row.job)
        else:
            key = _same(row, name)
            if key not in done:
                done[key] = next(simulations)
            same = done[key]
            if last[key] == number:
                del done[key]
            yield structs.replace(same, row=row)


def _same(row: Row, name: str) -> tuple[Any, ...]:
    """Return what the simulation of a row follows from."""
    job = row.job
    if isinstance(job, Iteration):
        return name, row.network, job.model, job.plan, job.software, job.power
    return name, row.network, job


def _simulating(changes: Mapping[str, Any]) -> Callable[[tuple[Row, str]], Prediction]:
    """Return the function of a process: it takes rows and the names of their machines.

    No row ends those after it, not even one that meets a defect here.
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
    """Times of single kernels on a machine."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._times: Callable[..., Any] | None = None
        self._accuracy: Accuracy | None = None
        self._why = ""
        try:
            system = read_system_alone(_of_single_kernels(preset(name).system))
            self._times, self._accuracy = kernel_times(compute_model(system)), system.accuracy
        except EtSimError as error:
            self._why = str(error)

    def prediction(self, row: Row, job: Kernel) -> Prediction:
        """Return that of a row."""
        if self._times is None:
            return Prediction(row, self._name, None, self._why)
        try:
            build = TraceBuilder(source=f"kernel on {self._name}")
            build.compute(job.shape, layer_shape=job.shape, dtype=job.datatype or None)
            time_ns = int(self._times(build.build(), np.zeros(1, np.int64), 0)[0])
        except EtSimError as error:
            return Prediction(row, self._name, None, str(error))
        stated = None if self._accuracy is None else self._accuracy.of_kernel_alone(job.shape)
        return _banded(row, self._name, time_ns, "modelled", stated)


def _banded(row: Row, name: str, time_ns: int, how: str, composition: Composition | None) -> Prediction:
    """Return a prediction with its band."""
    if composition is None:
        return Prediction(row, name, time_ns / 1000, how)
    low, high = composition.band(time_ns)
    return Prediction(row, name, time_ns / 1000, how, (low / 1000, high / 1000), composition.as_dict())


def _of_single_kernels(system: dict[str, Any]) -> dict[str, Any]:
    """Measured one by one, kernels are not at the limit of power that runs are at."""
    compute = {key: value for key, value in system["compute"].items() if key != SUSTAINED}
    return {**system, "compute": compute}


def _simulated(row: Row, name: str, changes: Mapping[str, Any]) -> Prediction:
    job: Any = row.job
    if isinstance(job, Collective):
        size = job.bytes // job.gpus if job.kind in SPREAD else job.bytes
        workload = make_microbenchmark(
            job.kind, ranks=job.gpus, size=max(size, 1), dtype=datatype_named(job.datatype) or ""
        )
        known = machine_of(name, job.gpus, job.nodes)
    else:
        workload, known = make_training(job.model, job.plan), machine_of(name, job.plan.ranks)
    network = network_between(row.network, known)
    system = {**known.system, "when-full": "report", **changes}  # what was measured had room
    if isinstance(job, Iteration) and job.power and POWER in system["compute"]:
        system["compute"] = {**system["compute"], POWER_CAP: job.power}
    if isinstance(job, Collective) and job.algorithm and "library" in system:
        system["library"] = {**system["library"], "algorithms": [job.algorithm]}
    how = "simulated"
    if network is not None:
        is_shared = "graph" in network
        rate = f"{network['graph']['bandwidth']} a card" if is_shared else f"{network['bandwidth'][-1]} a GPU"
        how += f", {rate} between nodes"
    result = simulate(workload, machine=known.text, system=system, network=network)
    composition = result.measurement.composition
    if isinstance(job, Iteration) and composition is not None and workload.step is not None:
        # Software that the source does not name is an assumption, whichever description stands in for it.
        traits = _accuracy(name).traits(workload.step.kinds, job.software)
        composition = structs.replace(composition, traits=traits)
    return _banded(row, name, result.makespan_ns, how, composition)


@cache
def _accuracy(name: str) -> Accuracy:
    accuracy = read_system_alone(preset(name).system).accuracy
    assert accuracy is not None  # presets have one
    return accuracy
