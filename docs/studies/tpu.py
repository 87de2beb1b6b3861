"""The study of TPU-like arrays: `python docs/studies/tpu.py` writes the figures and pictures of tpu.md.

Not here: what a step computes (`tpu_setup`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from plots import Axis, Bar, Group, Line, lines, stacked_bars
from study_page import table, write_study
from tpu_setup import IMAGES, NPUS, VALUE_BYTES, Product, Step, resnet, transformer

import et_sim

PAGE = Path(__file__).with_name("tpu.md")
SIDES, DATAFLOWS = (32, 128, 256), ("os", "ws", "is")
MEMORIES_KB = (4096, 4096, 2048)  # of ifmap, filter and ofmap, in KiB of words
CLOCK_GHZ, DRAM_WORDS, LINK_GBPS = 0.94, 64, 50
DRAM_SWEEP, LINK_SWEEP = (16, 32, 64, 128, 256, 512), (0.78125, 1.5625, 3.125, 6.25, 12.5, 25, 50, 100)
PARTS = ("array", "DRAM", "SRAM", "network")
SYSTEM = {
    "preferred-dataset-splits": 4,
    "all-reduce-implementation": ["ring", "ring", "ring"],
    "all-gather-implementation": ["ring", "ring", "ring"],
    "reduce-scatter-implementation": ["ring", "ring", "ring"],
    "all-to-all-implementation": ["ring", "ring", "ring"],
    "profile": "corrected",
    "endpoint-delay": 10,
    "local-mem-bw": 361,
}
WORKLOADS = {"ResNet-50": resnet, "transformer layer": transformer}


class Machine(Struct, frozen=True):
    """The settings that differ between runs."""

    side: int
    dataflow: str
    dram_words: int | None = DRAM_WORDS  # per cycle and operand; None: as many as it needs
    link_gbps: float = LINK_GBPS

    def system(self) -> dict[str, Any]:
        """Return the object of the system file."""
        limit = {} if self.dram_words is None else {"bandwidth": self.dram_words}
        ifmap, filters, ofmap = MEMORIES_KB
        compute = {
            "model": "systolic",
            "array-height": self.side,
            "array-width": self.side,
            "ifmap-sram-kb": ifmap,
            "filter-sram-kb": filters,
            "ofmap-sram-kb": ofmap,
            "dataflow": self.dataflow,
            "rules": "corrected",
            "clock-ghz": CLOCK_GHZ,
        }
        return SYSTEM | {"compute": compute | limit}

    def network(self) -> dict[str, Any]:
        """Return a torus of 4 x 4 x 4."""
        return {
            "topology": ["Ring"] * 3,
            "npus_count": [4] * 3,
            "bandwidth": [self.link_gbps] * 3,
            "latency": [500.0] * 3,
        }


class Found(Struct, frozen=True):
    """A step: what it takes, and what it is spent on, in the order of PARTS."""

    step_ns: int
    parts: tuple[float, ...]
    used: float  # of all operations that the array could do in the step

    @property
    def bound(self) -> str:
        """Return the largest part of the time; DRAM and SRAM together are one part, named by the larger."""
        array, dram, sram, network = self.parts
        memory = "DRAM" if dram >= sram else "SRAM"
        times = {"array": array, memory: dram + sram, "network": network}
        return max(times, key=times.__getitem__)


def run(step: Step, machine: Machine) -> Found:
    """Simulate the step, and its kernels with DRAM as it is and without limit: the difference is waiting."""
    result = et_sim.simulate(step.workload(), system=machine.system(), network=machine.network())
    shapes = tuple(sorted({kernel.shape for kernel in step.kernels}))
    busy = _kernels_ns(shapes, replace(machine, dram_words=None, link_gbps=LINK_GBPS))
    taken = _kernels_ns(shapes, replace(machine, link_gbps=LINK_GBPS))
    array = dram = compute = 0.0
    for kernel in step.kernels:
        waits = taken[kernel.shape] - busy[kernel.shape]
        array += busy[kernel.shape]
        compute += taken[kernel.shape]
        dram += min(waits, _least_wait(kernel, busy[kernel.shape], machine))
    parts = (array, dram, compute - array - dram, result.makespan_ns - compute)
    possible = 2 * machine.side**2 * CLOCK_GHZ * result.makespan_ns
    used = sum(kernel.operations for kernel in step.kernels) / possible
    return Found(result.makespan_ns, parts, used)


@cache
def _kernels_ns(shapes: tuple[str, ...], machine: Machine) -> dict[str, int]:
    """Return the time of each shape in a timeline."""
    build = et_sim.TraceBuilder()
    for shape in shapes:
        build.compute(shape, layer_shape=shape)
    workload = et_sim.Workload.of([build.build()] * NPUS)
    result = et_sim.simulate(workload, system=machine.system(), network=machine.network())
    rows = result.timeline.slice(0, len(shapes)).to_pylist()
    return {row["name"]: row["end_ns"] - row["start_ns"] for row in rows}


def _least_wait(kernel: Product, busy_ns: int, machine: Machine) -> float:
    """Return the wait of the array if every word moves once; each operand has its own bandwidth."""
    if machine.dram_words is None:
        return 0.0
    rows, columns, inner = kernel.rows, kernel.columns, kernel.inner
    words = max(rows * inner, inner * columns, rows * columns)
    return max(0.0, words / machine.dram_words / CLOCK_GHZ - busy_ns)


Results = dict[str, dict[tuple[int, str], Found]]


def all_arrays() -> Results:
    """Simulate both workloads on every array, with every dataflow."""
    arrays = [(side, dataflow) for side in SIDES for dataflow in DATAFLOWS]
    return {
        name: {array: run(make(), Machine(*array)) for array in arrays} for name, make in WORKLOADS.items()
    }


def found_table(found: dict[tuple[int, str], Found]) -> str:
    """Return the table of one workload."""
    head = ("array", "dataflow", "step, ms", "operations used", *PARTS, "bound by")
    rows = []
    for (side, dataflow), one in found.items():
        shares = [f"{part / one.step_ns:.0%}" for part in one.parts]
        rows.append(
            [f"{side} x {side}", dataflow, f"{one.step_ns / 1e6:,.1f}", f"{one.used:.0%}", *shares, one.bound]
        )
    return table(head, rows)


def bars(name: str, found: dict[tuple[int, str], Found]) -> str:
    """Draw the shares of a step's time, with the time above."""
    groups = [
        Group(
            f"{side} x {side}",
            [
                Bar(
                    dataflow,
                    [100 * part / found[side, dataflow].step_ns for part in found[side, dataflow].parts],
                    f"{found[side, dataflow].step_ns / 1e6:,.0f} ms",
                )
                for dataflow in DATAFLOWS
            ],
        )
        for side in SIDES
    ]
    return stacked_bars(f"{name}: a step on 64 NPUs", "share of the step, %", PARTS, groups)


def dram_gbps(words: int) -> float:
    """Return the bandwidth of an NPU, which has three operands."""
    return 3 * words * VALUE_BYTES * CLOCK_GHZ


def swept(machines: Callable[[int], list[Machine]]) -> dict[tuple[str, int], list[Found]]:
    """Simulate both workloads on every array, each with some machines."""
    return {
        (name, side): [run(make(), machine) for machine in machines(side)]
        for name, make in WORKLOADS.items()
        for side in SIDES
    }


def sweep_lines(title: str, axis: str, values: Sequence[float], found: dict[Any, list[Found]]) -> str:
    """Draw the time of a step over a figure."""
    series = [
        Line(
            f"{name}, {side} x {side}",
            [(x, one.step_ns / 1e6) for x, one in zip(values, line, strict=True)],
        )
        for (name, side), line in found.items()
    ]
    return lines(title, Axis(axis, is_log=True), Axis("time of a step, ms", is_log=True), series)


def sweep_table(head: str, values: Sequence[float], found: dict[Any, list[Found]]) -> str:
    """Return the time of a step, and its bound."""
    names = [f"{name}, {side} x {side}" for name, side in found]
    rows = [
        [f"{value:,.4g}", *(f"{line[at].step_ns / 1e6:,.1f} ({line[at].bound})" for line in found.values())]
        for at, value in enumerate(values)
    ]
    return table((head, *names), rows)


def windows_table() -> str:
    """Compare windows that overlap with the product of these windows; an NPU's images are stacked."""
    rows = []
    for side, channels in ((56, 64), (28, 128), (14, 256)):
        height, width = IMAGES * (side + 2), side + 2
        shapes = (
            f"conv {height} {width} 3 3 {channels} {channels} 1 1",
            f"gemm {(height - 2) * side} {channels} {9 * channels}",
        )
        taken = _kernels_ns(shapes, Machine(128, "os"))
        busy = _kernels_ns(shapes, Machine(128, "os", None))
        times = (busy[shapes[1]], taken[shapes[0]], taken[shapes[1]])
        rows.append([f"{channels} channels, {side} x {side}", *(f"{ns / 1e6:.2f}" for ns in times)])
    return table(("3 x 3 filters", "array alone, ms", "windows that overlap, ms", "product, ms"), rows)


def findings(results: Results) -> str:
    """Return the bounds, and the gain of a larger array, in words."""
    found = []
    for name, of_array in results.items():
        best = {side: min(of_array[side, dataflow].step_ns for dataflow in DATAFLOWS) for side in SIDES}
        bounds = "; ".join(f"{side} x {side}: {_bounds(of_array, side)}" for side in SIDES)
        found.append(f"- {name} is bound by: {bounds}.")
        for small, large in pairwise(SIDES):
            dataflow = min(DATAFLOWS, key=lambda one: of_array[large, one].step_ns)
            found.append(
                f"- {name}, {large} x {large} in place of {small} x {small}: {large**2 // small**2} times the"
                f" operations per second, and a step that is {best[small] / best[large]:.1f} times as fast"
                f" (fastest with `{dataflow}`)."
            )
    return "\n".join(found)


def _bounds(of_array: dict[tuple[int, str], Found], side: int) -> str:
    by_bound: dict[str, list[str]] = {}
    for dataflow in DATAFLOWS:
        by_bound.setdefault(of_array[side, dataflow].bound, []).append(f"`{dataflow}`")
    if len(by_bound) == 1:
        return next(iter(by_bound))
    return ", ".join(f"{bound} ({' and '.join(names)})" for bound, names in by_bound.items())


def study() -> tuple[dict[str, str], dict[str, str]]:
    """Return the texts of the page, and the pictures beside it."""
    results = all_arrays()
    dram = swept(lambda side: [Machine(side, "os", words) for words in DRAM_SWEEP])
    links = swept(lambda side: [Machine(side, "os", link_gbps=gbps) for gbps in LINK_SWEEP])
    gbps = [dram_gbps(words) for words in DRAM_SWEEP]
    texts = {
        "findings": findings(results),
        "resnet": found_table(results["ResNet-50"]),
        "transformer": found_table(results["transformer layer"]),
        "dram": sweep_table("DRAM, GB/s", gbps, dram),
        "links": sweep_table("link, GB/s", LINK_SWEEP, links),
        "windows": windows_table(),
    }
    pictures = {
        "tpu-resnet.svg": bars("ResNet-50", results["ResNet-50"]),
        "tpu-transformer.svg": bars("Transformer layer", results["transformer layer"]),
        "tpu-dram.svg": sweep_lines("More bandwidth of DRAM", "DRAM of an NPU, GB/s", gbps, dram),
        "tpu-links.svg": sweep_lines(
            "More bandwidth of links", "each link and direction, GB/s", LINK_SWEEP, links
        ),
    }
    return texts, pictures


if __name__ == "__main__":
    write_study(PAGE, *study())
