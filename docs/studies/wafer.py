"""Wafers or conventional networks: four jobs on networks that differ in how they spread equal bandwidth.

    python docs/studies/wafer.py

simulates all that docs/studies/wafer.md shows, and writes its tables and pictures (some minutes).

Not here: jobs (`et_sim.workloads`), and schedulers of collectives (docs/collectives.md).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, structs
from msgspec.structs import replace
from plots import Axis, Bar, Group, Line, lines, stacked_bars
from study_page import table, write_study

import et_sim
from et_sim.trace.columns import BIT
from et_sim.workloads import Model, Plan, make_dlrm_training, make_training, read_dlrm, read_model
from et_sim.workloads.models.model import Attention, FeedForward

PAGE = Path(__file__).with_suffix(".md")
TFLOPS, MEMORY_GBPS = 234.0, 2039.0
LATENCY_NS = 50  # of a link; a message takes two, by way of a switch
SEQUENCES = 4  # of a replica, in one micro-batch
BASELINE, THEMIS = "baseline", "Themis"
SCHEDULING = {
    BASELINE: {"inter-dimension-scheduling": "baseline", "intra-dimension-scheduling": "FIFO"},
    THEMIS: {"inter-dimension-scheduling": "offlineGreedy", "intra-dimension-scheduling": "smallestFirst"},
}
SIZE, GROWTH = 512, 8


class Shape(Struct, frozen=True):
    """Dimensions of NPUs, innermost first, and what an NPU has in each of them, in GB/s."""

    name: str
    sizes: tuple[int, ...]
    gbps: tuple[int, ...]

    @property
    def npus(self) -> int:
        """Return the number of NPUs."""
        return prod(self.sizes)

    @property
    def is_wafer(self) -> bool:
        """Check that the first dimension grows, and not the last one."""
        return len(self.sizes) <= 2

    def grown(self, factor: int, *, inside: bool) -> Shape:
        """Return the shape with `factor` times the NPUs, along the first dimension or the last one."""
        at = 0 if inside else len(self.sizes) - 1
        sizes = tuple(size * (factor if d == at else 1) for d, size in enumerate(self.sizes))
        return replace(self, sizes=sizes)


SHAPES = (
    Shape("1-D, 350", (512,), (350,)),
    Shape("3-D, 350", (16, 8, 4), (200, 100, 50)),
    Shape("1-D, 500", (512,), (500,)),
    Shape("2-D, 500", (32, 16), (250, 250)),
    Shape("1-D, 600", (512,), (600,)),
    Shape("4-D, 600", (2, 8, 8, 4), (250, 200, 100, 50)),
)
FOUR = SHAPES[-1]
FAST = replace(FOUR, gbps=(1000, *FOUR.gbps[1:]))  # with a first dimension that is on a wafer


class Job(Struct, frozen=True):
    """A workload; its innermost `shared` ranks share the model's layers, and collectives have `chunks`."""

    name: str
    make: Callable[[int], et_sim.Workload]  # for so many NPUs
    shared: int = 1
    chunks: int = 16


class Point(Struct, frozen=True):
    """One simulation, in milliseconds."""

    whole: float
    computing: float

    @property
    def exposed(self) -> float:
        """Return the time without computation."""
        return self.whole - self.computing


def all_reduce(npus: int) -> et_sim.Workload:
    """Return an all-reduce of 1 GB."""
    build = et_sim.TraceBuilder()
    build.collective("all_reduce", 10**9)
    return et_sim.Workload((build.build(),), np.zeros(npus, np.int32))


def dlrm(npus: int) -> et_sim.Workload:
    """Return a DLRM whose tables are spread over all NPUs, each of which has the networks."""
    _, model = read_dlrm("hoti-2020")
    plan = Plan(data=npus, batch=model.batch, micro_batches=1, tflops=TFLOPS, memory_gbps=MEMORY_GBPS)
    return make_dlrm_training(model, plan)


def trillion() -> Model:
    """Return a GPT of 10^12 weights, with as many heads as ranks that share them."""
    attention = Attention(128, 128, 200, has_bias=True, has_output_bias=True)
    inner = FeedForward(4 * 25600, is_gated=False, has_bias=True)
    return Model(
        "1T",
        "dimensions of the study",
        25600,
        128,
        51200,
        2048,
        attention,
        inner,
        positions=2048,
        is_tied=True,
        norm_vectors=2,
    )


def transformer(model: Model, shared: int, sequences: int = SEQUENCES) -> Callable[[int], et_sim.Workload]:
    """Return a maker of a training step, with replicas of `shared` ranks."""

    def make(npus: int) -> et_sim.Workload:
        plan = Plan(
            tensor=shared,
            data=npus // shared,
            batch=sequences,
            micro_batches=1,
            bucket=200 << 20,
            tflops=TFLOPS,
            memory_gbps=MEMORY_GBPS,
        )
        return make_training(model, plan)

    return make


def jobs(sequences: int = SEQUENCES) -> tuple[Job, ...]:
    """Return the four jobs of the study."""
    return (
        Job("all-reduce, 1 GB", all_reduce, chunks=64),
        Job("DLRM", dlrm),
        Job("GPT-3, 175B", transformer(read_model("gpt3-175b"), 16, sequences), 16),
        Job("1T", transformer(trillion(), 128, sequences), 128),
    )


def cut(sizes: Sequence[int], shared: int) -> tuple[tuple[int, ...], int]:
    """Return dimensions, the first of which together have `shared` ranks, and the number of these first ones.

    Ranks that share a model may be a part of a dimension, which is cut in two there.
    """
    found, inner, left = [], 0, shared
    for size in sizes:
        if left > 1:
            found.append(min(left, size))
            inner, left, size = inner + 1, left // found[-1], size // found[-1]
        if size > 1:
            found.append(size)
    return tuple(found), inner


def along_dimensions(workload: et_sim.Workload, dimensions: int, inner: int) -> et_sim.Workload:
    """Return the same job, whose collectives name their dimensions in place of groups."""
    everything = (1 << dimensions) - 1
    chosen = {"tensor": (1 << inner) - 1, "data": everything & ~((1 << inner) - 1)}
    templates = []
    for trace in workload.templates:
        dims, count = trace.involved_dims.copy(), trace.involved_count.copy()
        present = trace.present.copy()
        for number, name in enumerate(trace.group_names):
            if name in chosen:
                rows = trace.group == number
                dims[rows], count[rows] = chosen[name], dimensions
                present[rows] |= np.uint32(BIT["involved_dim"])
                present[rows] &= ~np.uint32(BIT["pg_name"])
        changed = replace(trace, involved_dims=dims, involved_count=count, present=present)
        templates.append(replace(changed, group=np.zeros_like(trace.group)))
    return structs.replace(workload, templates=tuple(templates), group_rules={})


def network(shape: Shape, dimensions: tuple[int, ...]) -> dict[str, Any]:
    """Return a network with a switch for each line of a dimension; collectives run along `dimensions`."""
    if dimensions == shape.sizes:
        return {
            "topology": ["Switch"] * len(shape.sizes),
            "npus_count": list(shape.sizes),
            "bandwidth": [f"{gbps}GB/s" for gbps in shape.gbps],
            "latency": [LATENCY_NS] * len(shape.sizes),
        }
    links: list[dict[str, Any]] = []
    stride = 1
    for size, gbps in zip(shape.sizes, shape.gbps, strict=True):
        for first in range(shape.npus):
            if first // stride % size == 0:
                members = [f"npu{first + place * stride}" for place in range(size)]
                switch = f"switch{len(links)}"
                link = {"from": members, "to": switch, "bandwidth": f"{gbps}GB/s", "latency": LATENCY_NS}
                links.append(link)
        stride *= size
    switches = [link["to"] for link in links]
    return {
        "npus": shape.npus,
        "switches": switches,
        "links": links,
        "logical-dimensions": list(dimensions),
    }


def simulated(job: Job, shape: Shape, scheduling: str) -> Point:
    """Simulate one step of the job."""
    dimensions, inner = cut(shape.sizes, job.shared)
    halving = ["halvingDoubling"] * len(dimensions)
    system = {
        "profile": "corrected",
        "scheduling-policy": "FIFO",
        "endpoint-delay": 10,
        "preferred-dataset-splits": job.chunks,
        "active-chunks-per-dimension": 1,
        "all-reduce-implementation": halving,
        "reduce-scatter-implementation": halving,
        "all-gather-implementation": halving,
        "all-to-all-implementation": ["direct128"] * len(dimensions),
        **SCHEDULING[scheduling],
    }
    workload = along_dimensions(job.make(shape.npus), len(dimensions), inner)
    result = et_sim.simulate(workload, system=system, network=network(shape, dimensions), model="flow")
    return Point(result.makespan_ns / 1e6, float(np.mean(result.compute_ns)) / 1e6)


class Study:
    """All simulations, each done once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, Shape, str, int], Point] = {}
        self._jobs = {sequences: jobs(sequences) for sequences in (1, SEQUENCES, 16)}

    def point(self, name: str, shape: Shape, scheduling: str, sequences: int = SEQUENCES) -> Point:
        """Return one step of a job, simulated once."""
        if len(shape.sizes) == 1:  # there is no order of dimensions to choose
            scheduling = BASELINE
        key = (name, replace(shape, name=""), scheduling, sequences)
        if key not in self._known:
            job = next(job for job in self._jobs[sequences] if job.name == name)
            self._known[key] = simulated(job, shape, scheduling)
            what = f"{name}, {shape.sizes}, {shape.gbps}, {scheduling}, {sequences}"
            sys.stderr.write(f"{what}: {self._known[key]}\n")
        return self._known[key]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the jobs."""
        return tuple(job.name for job in self._jobs[SEQUENCES])


def wafer_like(shape: Shape) -> Shape:
    """Return the one-dimensional network with the bandwidth of this one."""
    return next(one for one in SHAPES if len(one.sizes) == 1 and sum(one.gbps) == sum(shape.gbps))


def milliseconds(value: float) -> str:
    """Format milliseconds with the digits that matter."""
    return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


def compared(study: Study) -> str:
    """Write all jobs and networks with 512 NPUs."""
    rows = []
    for name in study.names:
        for shape in SHAPES:
            cells = [f"{name}: {shape.name}"]
            for scheduling in SCHEDULING:
                point, beside = (study.point(name, one, scheduling) for one in (shape, wafer_like(shape)))
                cells += [milliseconds(point.whole), milliseconds(point.exposed)]
                cells.append(f"{point.whole / beside.whole:.2f}")
            rows.append(cells)
    head = [f"{scheduling}{what}" for scheduling in SCHEDULING for what in (", ms", ", exposed", ", by 1-D")]
    return table(["job: network", *head], rows)


def grown(study: Study) -> str:
    """Write the same with eight times the NPUs."""
    rows = []
    for name in study.names:
        for shape in SHAPES:
            if len(shape.sizes) == 2 and name in study.names[2:]:
                continue  # takes long: its links are a graph, along parts of whose dimensions chunks go
            more = shape.grown(GROWTH, inside=shape.is_wafer)
            cells = [f"{name}: {shape.name}", " x ".join(map(str, more.sizes))]
            for scheduling in SCHEDULING:
                before, after = (study.point(name, one, scheduling) for one in (shape, more))
                cells += [milliseconds(after.whole), f"{after.whole / before.whole:.2f}"]
            rows.append(cells)
    head = ["job: network", "NPUs"]
    for scheduling in SCHEDULING:
        head += [f"{scheduling}, ms", "by 512"]
    return table(head, rows)


def scaled(study: Study) -> str:
    """Write the speed-up of a 4-D network that grows in its fast first dimension, and not its last."""
    rows = []
    for name in study.names:
        cells = [name]
        for scheduling in SCHEDULING:
            outside, inside = (
                study.point(name, FAST.grown(GROWTH, inside=way), scheduling).whole for way in (False, True)
            )
            cells += [milliseconds(outside), milliseconds(inside), f"{outside / inside:.2f}"]
        rows.append(cells)
    head = [f"{way}, {what}" for way in SCHEDULING for what in ("NICs, ms", "wafer, ms", "faster")]
    return table(["job", *head], rows)


def by_sequences(study: Study) -> str:
    """Write the effect of a replica's sequences on transformers on the 3-D network."""
    rows = []
    for name in study.names[2:]:
        three = SHAPES[1]
        cells = [f"{name}: {three.name}"]
        for sequences in (1, SEQUENCES, 16):
            point, beside = (
                study.point(name, one, THEMIS, sequences).whole for one in (three, wafer_like(three))
            )
            cells.append(f"{point / beside:.2f}")
        rows.append(cells)
    return table(["Themis, by 1-D", "1 sequence", f"{SEQUENCES}", "16"], rows)


def bars(study: Study, title: str, names: Sequence[str]) -> str:
    """Draw times relative to the 1-D network of 600 GB/s."""
    groups = []
    for name in names:
        unit = study.point(name, wafer_like(FOUR), THEMIS).whole
        found = []
        for shape in SHAPES:
            base, better = (study.point(name, shape, scheduling) for scheduling in SCHEDULING)
            parts = (better.computing, better.exposed, max(base.whole - better.whole, 0.0))
            found.append(Bar(shape.name, [part / unit for part in parts], f"{better.whole / unit:.2f}"))
        groups.append(Group(name, found))
    legend = ("computation", "exposed communication", "more of that without Themis")
    return stacked_bars(title, "time, by 1-D, 600 GB/s", legend, groups)


def scaling(study: Study) -> str:
    """Draw an all-reduce on the 4-D network, from 512 to 4,096 NPUs."""
    series = []
    for shape in (FOUR, FAST):
        for inside, what in ((False, "last"), (True, "first")):
            points = [
                (
                    float(SIZE * factor),
                    study.point(study.names[0], shape.grown(factor, inside=inside), BASELINE).whole,
                )
                for factor in (1, 2, 4, 8)
            ]
            series.append(Line(f"{what} dimension grows, first {shape.gbps[0]:,} GB/s", points))
    up = Axis("all-reduce of 1 GB, ms")
    return lines("Growing the 4-D network, baseline", Axis("NPUs", is_log=True), up, series)


def study() -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the texts and pictures of the page."""
    done = Study()
    texts = {
        "compared": compared(done),
        "grown": grown(done),
        "scaled": scaled(done),
        "sequences": by_sequences(done),
    }
    pictures = {
        "wafer-flat.svg": bars(done, "Collectives of all NPUs, with Themis", done.names[:2]),
        "wafer-transformers.svg": bars(done, "Transformers, with Themis", done.names[2:]),
        "wafer-scaling.svg": scaling(done),
    }
    return texts, pictures


def main() -> None:
    """Simulate all, and write the page."""
    write_study(PAGE, *study())


if __name__ == "__main__":
    main()
