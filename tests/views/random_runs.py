"""Random small runs of many kinds: a seed and the name of a kind determine a run, whose results are kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple

import failing_parts
import numpy as np
import random_cases
import reference_cases
from machines import KINDS, SHAPES, network, ring, system
from straddling_cases import straddling_case
from training_jobs import decoder, with_experts, with_latent_attention

from et_sim.api import run
from et_sim.basics.errors import EtSimError
from et_sim.machine.congestion import ROCE, TCP
from et_sim.run.result import Result
from et_sim.trace import TraceBuilder, Workload
from et_sim.workloads import Plan, make_training

DETAILS = ("nodes", "phases", "path", "phases,messages", "links", "path,phases", "messages,links,path")

EAGER = {  # repeated steps are looked for as often as can be
    "FEWEST_MESSAGES": 3,
    "MESSAGES_PER_EVENT": 0,
    "QUEUES_PER_MESSAGE": 1 << 40,
    "ENTRIES_PER_MESSAGE": 1 << 40,
}
SEARCHED = {f"et_sim.engine.repeats.search.{name}": value for name, value in EAGER.items()}
SMALL = {  # blocks of rows, which change no result
    "et_sim.timeline.rows.ROWS_AT_ONCE": 3,
    "et_sim.timeline.waiting.arrivals.ROWS_AT_ONCE": 3,
    "et_sim.timeline.contents.network.ROWS_AT_ONCE": 3,
    "et_sim.timeline.spool.AT_A_TIME": 2,
    "et_sim.trace.stack.ROWS_AT_ONCE": 3,
}
BUS = {"model-shared-bus": 1, "L": 1, "o": 1, "g": 1, "G": 0.1}
VARYING = [{"ranks": "0-1", "compute": 1.5, "delay": 10, "jitter": 0.1, "seed": 1}]
SHORTER = [{"ranks": "0-1", "kernels": 0.5, "gaps": 0}]


class Drawn(NamedTuple):
    """A workload, the options of its run, and keys that are left out where they are refused."""

    workload: Workload
    options: dict[str, Any]
    written: tuple[range, ...] = ()  # ranks whose rows are written; none: all
    keys: Mapping[str, Any] = MappingProxyType({})
    with_keys: Callable[[dict[str, Any]], dict[str, Any]] = dict  # the options with these keys
    patched: Mapping[str, Any] = MappingProxyType({})  # limits that change no result, for this run
    figures: Callable[[Result], str] | None = None  # more of the result, which no file has
    beside: Callable[[Path], None] | None = None  # writes more files

    def run(self) -> Result:
        """Return the result of the run, with as many keys as are not refused."""
        keys = dict(self.keys)
        while True:
            try:
                return run(self.workload, **self.options | self.with_keys(keys))
            except EtSimError as error:
                if not keys:
                    raise
                named = [name for name in keys if f'"{name.split()[-1]}"' in str(error)]
                dropped = [*keys, *named][-1]
            keys = {name: value for name, value in keys.items() if name != dropped}


def grids(seed: int) -> Drawn:
    """Return a workload on dimensions or on parts of them, some with a bus or with delays that vary."""
    draw, case = Random(seed), random_cases.random_case(seed, in_parts=seed % 3 == 1)
    more = draw.choice(({}, {}, BUS, {"stragglers": VARYING}, {"time-factors": SHORTER}))
    case.machine["system"] |= more
    return _with_detail(seed, case)


def late(seed: int) -> Drawn:
    """Return a workload with late and slow ranks, kernels before collectives, or finite buffers."""
    makers = (
        random_cases.straggling_case,
        random_cases.working_case,
        random_cases.buffered_case,
        straddling_case,
    )
    return _with_detail(seed, makers[seed % len(makers)](seed))


def _with_detail(seed: int, case: random_cases.Case, details: tuple[str, ...] = DETAILS) -> Drawn:
    return Drawn(case.workload, case.machine | {"detail": Random(seed).choice(details)})


def graphs(seed: int) -> Drawn:
    """Return a workload on a graph whose messages share links, at rates or as packets with a protocol."""
    draw, case = Random(seed), random_cases.random_case(seed)
    npus = case.machine["network"]["npus_count"]
    network: dict[str, Any] = {"graph": {"generator": "nested"}}
    while network["graph"]["generator"] == "nested":
        network = random_cases.graph_under(draw, npus)
    model = draw.choice(("link", "flow", "packet", "packet"))
    details = [*DETAILS, "ports"] if model == "packet" else DETAILS
    if model == "packet":
        network |= _packets(draw)
    elif model == "flow" and draw.random() < 0.5:
        network["protocol"] = {"preset": "roce"}
    machine = case.machine | {"network": network, "model": model, "detail": draw.choice(details)}
    return Drawn(case.workload, machine)


def _packets(draw: Random) -> dict[str, Any]:
    """Draw a protocol with little memory in switches, or credits."""
    kind = draw.choice(("roce", "roce", "tcp", "credits"))
    if kind == "credits":
        return {"credits": {"flit": 256, "packet": draw.choice((1024, 4096))}}
    control = draw.choice(sorted(ROCE if kind == "roce" else TCP))
    buffer = {"buffer": draw.choice((100_000, 400_000))} if draw.random() < 0.5 else {}
    if kind == "tcp":
        return {"protocol": {"preset": "tcp", "tcp": {"congestion-control": control}, **buffer}}
    return {"protocol": {"preset": "roce", "congestion-control": control, **buffer}}


def incasts(seed: int) -> Drawn:
    """Return large messages of several senders to few receivers, as packets over small buffers."""
    draw = Random(seed)
    ranks = draw.choice((3, 4, 6))
    builders = [TraceBuilder() for _ in range(ranks)]
    for tag in range(draw.randint(3, 7)):
        source, target = draw.choice([(a, b) for a in range(ranks) for b in range(2) if a != b])
        size = draw.choice((1, 30_000, 150_000))
        after = {"after": []} if draw.random() < 0.5 else {}
        builders[source].send(target, size, tag=tag, **after)
        builders[target].receive(source, size, tag=tag, after=[])
    graph = draw.choice(({"generator": "star", "npus": ranks}, _leaves(ranks)))
    network = {"graph": {**graph, "bandwidth": "100Gbps", "latency": draw.choice(("500ns", "5us"))}}
    detail = draw.choice(("ports", "links", "path", "messages,ports"))
    options = {"network": network | _packets(draw), "system": system(), "model": "packet", "detail": detail}
    return Drawn(Workload.of([builder.build() for builder in builders]), options)


def _leaves(ranks: int) -> dict[str, Any]:
    return {
        "generator": "leaf-spine",
        "leaves": ranks // (2 + ranks % 2),
        "spines": 2,
        "npus-per-leaf": 2 + ranks % 2,
    }


def failing(seed: int) -> Drawn:
    """Return collectives on a network whose links fail."""
    draw = Random(seed)
    workload, options = failing_parts.random_case(seed, draw.choice(("flow", "flow", "link")))
    return Drawn(workload, options | {"detail": draw.choice(("nodes", "phases", "messages,links"))})


def programs(seed: int) -> Drawn:
    """Return custom programs, with their files in this folder, beside other collectives and messages."""
    case = reference_cases.custom(seed)
    case.write_programs(Path())
    detail = Random(seed).choice(("path", "path,phases"))
    return Drawn(case.workload(), case.machine | {"model": case.model, "detail": detail})


def switches(seed: int) -> Drawn:
    """Return collectives that switches reduce, with late ranks."""
    draw = Random(seed)
    build = TraceBuilder()
    for number in range(draw.randint(1, 4)):
        if draw.random() < 0.4:
            build.compute(f"work {number}", micros=draw.choice((0, 1, 5)))
        kind = draw.choice(
            ("all_reduce", "all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all")
        )
        root = {"root": draw.randrange(4)} if kind == "broadcast" else {}
        build.collective(kind, draw.choice((64, 100_001, 1 << 20)), **root)
    leaves = {"generator": "leaf-spine", "leaves": 2, "spines": draw.choice((1, 2)), "npus-per-leaf": 2}
    graph = draw.choice(({"generator": "switch", "npus": 4}, leaves)) | {
        "bandwidth": "50GB/s",
        "latency": 500,
    }
    reduces = {"switches": "*", "latency": draw.choice((0, 100))}
    network = {"graph": graph, "in-network": [reduces], "logical-dimensions": [4]}
    keys = {"all-to-all-implementation": ["direct"], "broadcast-implementation": "inNetwork"}
    keys |= {"corrections": {"simulated-broadcast": True}, "preferred-dataset-splits": draw.choice((1, 3))}
    keys |= {"stragglers": [{"ranks": "1", "delay": "2us"}]} if draw.random() < 0.5 else {}
    options = {"system": system("inNetwork", **keys), "network": network}
    options |= {"model": draw.choice(("analytical", "link", "flow")), "detail": draw.choice(DETAILS)}
    return Drawn(Workload.of([build.build()] * 4), options)


def turns(seed: int) -> Drawn:
    """Return collectives with many steps and chunks, which turn from rank to rank."""
    draw = Random(seed)
    sizes = draw.choice(((8,), (13,), (16,), (8, 2), (5, 3), (4, 4)))
    ranks = int(np.prod(sizes))
    keys: dict[str, Any] = {
        "profile": draw.choice(("reference", "corrected")),
        "scheduling-policy": draw.choice(("LIFO", "FIFO")),
        "preferred-dataset-splits": draw.choice((1, 3, 9, 16)),
        "active-chunks-per-dimension": draw.choice((1, 2, 3)),
        "num-queues-per-dim": draw.choice((1, 2)),
        "endpoint-delay": draw.choice((0, 10, 500)),
    }
    if draw.random() < 0.3:
        keys["stragglers"] = [{"ranks": f"0-{ranks - 1}/2", "delay": "77ns"}]
    build, last = TraceBuilder(), list[int]()
    for _ in range(draw.choice((1, 1, 2, 3))):
        after = [] if draw.random() < 0.5 else last
        if draw.random() < 0.5:
            after = [build.compute(nanos=draw.choice((100, 40_000)), after=after)]
        last = [build.collective(draw.choice(KINDS), draw.choice((1 << 16, 1 << 20, 100_001)), after=after)]
    shapes = [draw.choice(SHAPES) for _ in sizes]
    net = network(shapes, list(sizes), latency=draw.choice((500.0, 0.0, 1234.0)))
    options = {"system": system("ring", len(sizes), **keys), "network": net, "fold": False}
    options |= {"model": draw.choice(("analytical", "link")), "detail": draw.choice(("nodes", "phases"))}
    return Drawn(Workload.of([build.build()] * ranks), options, patched=SEARCHED, figures=skipped)


def skipped(result: Result) -> str:
    return f"skipped={result.outcome.run.repeats[0].skipped}"


def memories(seed: int) -> Drawn:
    """Return loads and stores of pools and expansions, among kernels on a roofline and collectives."""
    draw = Random(seed)
    ranks = draw.choice((2, 4))
    build = TraceBuilder()
    made: list[int] = []
    for number in range(draw.randint(3, 8)):
        after = draw.sample(made, min(len(made), draw.randint(0, 2)))
        size = draw.choice((1, 4096, 1 << 17, 3_000_001))
        match draw.choice(("load", "store", "kernel", "kernel", "collective")):
            case "load":
                made.append(build.load(size, after=after))
            case "store":
                made.append(build.store(size, after=after))
            case "kernel":
                tensors = {"inputs": {"weights": 4096}, "outputs": {f"x{number % 3}": size % 65536 + 1}}
                operations = draw.choice((10**6, 10**9))
                made.append(
                    build.compute(
                        f"k{number % 3}", num_ops=operations, tensor_bytes=size, after=after, **tensors
                    )
                )
            case _:
                made.append(build.collective(draw.choice(KINDS), size, after=after))
    keys = {"roofline-enabled": 1, "peak-perf": 10, "track-local-mem": 1, "local-mem-bw": 50}
    options = {
        "system": system("ring", **keys),
        "network": ring(ranks, "50GB/s"),
        "memory": _memory(draw, ranks),
    }
    return Drawn(Workload.of([build.build()] * ranks), options | {"detail": draw.choice(DETAILS)})


def _memory(draw: Random, ranks: int) -> dict[str, Any]:
    expansion = {"remote-mem-latency": 100, "remote-mem-bw": 10}
    stages = [
        {"name": "nic", "count": ranks, "bandwidth": 100, "latency": 50},
        {"name": "switch", "count": ranks // 2, "bandwidth": draw.choice((50, 150)), "latency": 20},
        {"name": "memory", "count": 1, "bandwidth": 200, "latency": 100},
    ]
    return draw.choice(
        (
            {"memory-type": "PER_NPU_MEMORY_EXPANSION", **expansion},
            {
                "memory-type": "PER_NODE_MEMORY_EXPANSION",
                **expansion,
                "num-nodes": ranks // 2,
                "num-npus-per-node": 2,
            },
            {"memory-type": "HIERARCHICAL_POOL", "chunk": "64KiB", "stages": stages[draw.randint(0, 2) :]},
        )
    )


def training(seed: int) -> Drawn:
    """Return a step of a small model in a plan, on a machine with a library."""
    draw = Random(seed)
    make = draw.choice((decoder, decoder, with_experts, with_latent_attention))
    plan: dict[str, Any] = {"micro_batches": 2}
    plan |= draw.choice(({"tensor": 2, "data": 2}, {"pipeline": 2, "data": 2}, {"pipeline": 4}, {"data": 4}))
    if make is with_experts:
        plan |= {"sequence_parallel": "tensor" in plan, "expert": plan.get("data", 1)}
    ranks = int(np.prod([plan.get(axis, 1) for axis in ("tensor", "pipeline", "data")]))
    options: dict[str, Any] = {
        "machine": f"{draw.choice(('h100-dgx', 'a100-dgx-80gb', 'mi300x-node'))}:{ranks}"
    }
    options["detail"] = draw.choice(("nodes", "path", "phases"))
    if draw.random() < 0.4:
        options["model"] = draw.choice(("link", "flow"))
    return Drawn(make_training(make(), Plan(**plan)), options)


def parts(seed: int) -> Drawn:
    """Return a run of which the rows of some ranks are written, as others stand for them or not."""
    drawn = (memories, training, switches, grids)[seed % 4](seed)
    draw = Random(seed)
    first = draw.randrange(drawn.workload.ranks)
    return drawn._replace(written=(range(first, draw.randint(first + 1, drawn.workload.ranks)),))


RANDOM: dict[str, Callable[[int], Drawn]] = {
    "grids": grids,
    "late": late,
    "graphs": graphs,
    "incasts": incasts,
    "failing": failing,
    "programs": programs,
    "switches": switches,
    "memories": memories,
    "turns": turns,
    "training": training,
    "parts": parts,
}
