"""Random small runs of parts that few machines or jobs have, each kind of some rooms' rules."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from machines import KINDS, SHAPES, network, ring, system
from random_computing import COMPUTING
from random_memory import MEMORIES
from random_packets import PACKETS, PROFILES
from random_runs import (
    DETAILS,
    SEARCHED,
    Drawn,
    failing,
    graphs,
    grids,
    late,
    memories,
    programs,
    skipped,
    switches,
    turns,
)
from random_traces import TRACES
from ring_cases import RingCase

from et_sim.run.result import Result
from et_sim.trace import GroupRule, TraceBuilder, Workload, write_workload

PATHS = (grids, grids, late, switches, memories, programs, graphs, turns)  # kinds with a record of causes


def at_once(seed: int) -> Drawn:
    """Return a job whose rings are evaluated at once, where no message meets others."""
    case, draw = RingCase(seed), Random(f"at once {seed}")
    own = {"endpoint-delay": 0} if draw.random() < 0.25 else {}
    own |= {"preferred-dataset-splits": 2} if draw.random() < 0.2 else {}
    own |= {"profile": "reference"} if draw.random() < 0.1 else {}
    own |= {"rendezvous-protocol": True} if draw.random() < 0.1 else {}
    options = case.machine | {"model": "flow", "fold": False, "system": case.machine["system"] | own}
    options |= {"detail": draw.choice(DETAILS)} if draw.random() < 0.1 else {}
    eager = {"et_sim.engine.driver.FEWEST_TO_GO_AHEAD": 0}
    return Drawn(case.workload, options, patched=eager, figures=_evaluated)


def advances(seed: int) -> Drawn:
    """Return collectives of many chunks, which follow each other from one dimension to the next."""
    draw = Random(seed)
    sizes = draw.choice(((4, 2), (3, 2), (2, 3), (3, 2, 2), (4, 4)))
    ranks, count = int(np.prod(sizes)), len(sizes)
    others = ("ring", "ring", "halvingDoubling", "direct", "doubleBinaryTree", "direct1")
    lists = [draw.choice(others) for _ in sizes] if draw.random() < 0.3 else [draw.choice(others[:3])] * count
    own = system("ring", count)
    own |= {f"{kind.replace('_', '-')}-implementation": lists for kind in KINDS[:3]}
    own |= {
        "profile": draw.choice(("reference", "reference", "corrected")),
        "scheduling-policy": draw.choice(("LIFO", "FIFO")),
        "preferred-dataset-splits": draw.choice((16, 21, 32)),
        "active-chunks-per-dimension": draw.choice((1, 1, 1, 1, 2)),
        "num-queues-per-dim": draw.choice((1, 1, 1, 1, 2)),
        "endpoint-delay": draw.choice((10, 500)),
        "local-mem-bw": draw.choice((50, 1)),
    }
    if draw.random() < 0.2:
        own["stragglers"] = [{"ranks": draw.choice(("0", f"0-{ranks - 1}/2")), "delay": "77ns"}]
    build, last = TraceBuilder(), list[int]()
    for _ in range(draw.choice((1, 1, 2))):
        after = [build.compute(nanos=draw.choice((1, 9000)), after=last)] if draw.random() < 0.3 else last
        kind = draw.choice((*KINDS[:3], *KINDS))
        last = [build.collective(kind, draw.choice((1 << 16, 1 << 20)), after=after)]
        last *= draw.random() < 0.5
    net = network([draw.choice((*SHAPES, "Ring", "Ring"))] * count, list(sizes))
    if draw.random() < 0.3:
        net["bandwidth"] = [draw.choice((50.0, 37.5)) for _ in sizes]
    options = {"system": own, "network": net, "fold": False}
    options["model"] = draw.choice(("analytical", "link", "flow"))
    return Drawn(Workload.of([build.build()] * ranks), options, patched=SEARCHED, figures=skipped)


def _evaluated(result: Result) -> str:
    return f"at-once={len(result.outcome.run.order_marks) > 0}"


def levels(seed: int) -> Drawn:
    """Return the loop of a layer file on the bundles of links of ASTRA-sim 1.0."""
    draw = Random(seed)
    sizes = draw.choice(([4], [6], [4, 4], [2, 4], [2, 2, 2], [4, 2, 2]))
    wired = [draw.choice(SHAPES) for _ in sizes]
    net = _bundles(draw, sizes, wired)
    names = {"Ring": "ring", "FullyConnected": "direct", "Switch": "halvingDoubling"}
    given = {
        f"{kind}-implementation": "_".join(
            "direct" if kind == "all-to-all" and shape != "Ring" else names[shape] for shape in wired
        )
        for kind in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
    }
    given |= {
        "scheduling-policy": draw.choice(("LIFO", "FIFO")),
        "endpoint-delay": str(draw.choice((1, 10, 100))),
        "active-chunks-per-dimension": str(draw.choice((1, 2))),
        "preferred-dataset-splits": str(draw.choice((1, 4, 5))),
        "boost-mode": str(draw.choice((0, 1))),
        "collective-optimization": draw.choice(("localBWAware", "baseline")),
    }
    if draw.random() < 0.3:
        given |= {"num-queues-per-dim": "2", "injection-scale": "2.5"}
    if draw.random() < 0.3:
        orders = ("offlineGreedy", "roundRobin", "offlineGreedyFlex")
        given["inter-dimension-scheduling"] = draw.choice(orders)
        given["intra-dimension-scheduling"] = draw.choice(("smallestFirst", "RG", "FIFO"))
    Path("system.txt").write_text("".join(f"{key}: {value}\n" for key, value in given.items()))
    Path("network.json").write_text(json.dumps(net))
    Path("layers.txt").write_text(_layers(draw))
    options = {"system": "system.txt", "network": "network.json", "detail": draw.choice(DETAILS)}
    return Drawn("layers.txt", options)


def ordered(seed: int) -> Drawn:
    """Return such a loop of many chunks that take dimensions, and places in queues, by rules of Themis."""
    draw, drawn = Random(f"ordered {seed}"), levels(1000 + seed)
    rules = {
        "inter-dimension-scheduling": ("offlineGreedy", "roundRobin", "offlineGreedyFlex"),
        "intra-dimension-scheduling": ("smallestFirst", "RG", "lessRemainingPhaseFirst", "FIFO"),
        "preferred-dataset-splits": ("8", "16"),
    }
    kept = [line for line in Path("system.txt").read_text().splitlines() if line.split(":")[0] not in rules]
    kept += [f"{name}: {draw.choice(values)}" for name, values in rules.items()]
    Path("system.txt").write_text("\n".join(kept) + "\n")
    return drawn


def breaks(seed: int) -> Drawn:
    """Return another run on a network whose links fail."""
    return failing(1000 + seed)


def _bundles(draw: Random, sizes: list[int], wired: list[str]) -> dict[str, Any]:
    """Return a network file of ASTRA-sim 1.0."""

    def each(*values: Any) -> list[Any]:
        return [draw.choice(values) for _ in sizes]

    net: dict[str, Any] = {
        "dimensions-count": len(sizes),
        "topologies-per-dim": wired,
        "units-count": sizes,
        "links-count": [
            size - 1 if shape == "FullyConnected" else draw.choice((2, 3))
            for size, shape in zip(sizes, wired, strict=True)
        ],
        "link-latency": each(1, 500, 30),
        "link-bandwidth": each(50, 6.25),
    }
    net |= {"nic-latency": each(0, 7), "router-latency": each(0, 13)} if draw.random() < 0.6 else {}
    if draw.random() < 0.6:
        net |= {"hbm-latency": each(0, 500), "hbm-bandwidth": each(10, 370), "hbm-scale": each(0, 1, 2.5)}
    return net


def _layers(draw: Random) -> str:
    """Return a layer file of one to three layers."""
    loop = draw.choice(("DATA", "MODEL", "HYBRID_DATA_MODEL", "MICRO", "HYBRID_MODEL_DATA"))
    count = 1 if loop == "MICRO" else draw.randint(1, 3)
    kinds = ("NONE", "ALLREDUCE", "ALLGATHER", "REDUCESCATTER", "ALLTOALL")
    lines = [loop, str(count)]
    for number in range(count):
        passes = []
        for _ in range(3):
            kind = draw.choice(kinds)
            size = 0 if kind == "NONE" else draw.choice((640, 4096, 65_536, 100_001))
            passes.append(f"{draw.choice((1, 30, 900))} {kind} {size}")
        lines.append(f"layer{number} -1 {' '.join(passes)} {draw.choice((0, 7))}")
    return "\n".join(lines) + "\n"


def goals(seed: int) -> Drawn:
    """Return a schedule of LogGOPSim with labels, waits for begins, and threads, under either rules."""
    draw = Random(seed)
    ranks = draw.choice((2, 3, 4))
    bodies: list[list[str]] = [[] for _ in range(ranks)]
    counts = [0] * ranks

    def add(rank: int, statement: str, more: str = "") -> None:
        counts[rank] += 1
        label = f"l{counts[rank]}"
        bodies[rank].append(f"{label}: {statement}{more}")
        for other in draw.sample(range(1, counts[rank]), min(counts[rank] - 1, draw.randint(0, 2))):
            is_receive = f"l{other}: recv" in " ".join(bodies[rank])
            word = "irequires" if draw.random() < (0.4 if is_receive else 0.005) else "requires"
            bodies[rank].append(f"{label} {word} l{other}")

    for tag in range(draw.randint(2, 9)):
        source, target = draw.sample(range(ranks), 2)
        size = draw.choice((1, 8, 1000, 65_535, 65_536, 200_000))
        thread = " nic 1" if draw.random() < 0.01 else draw.choice(("", " cpu 0", " nic 0"))
        if draw.random() < 0.5:
            add(draw.randrange(ranks), f"calc {draw.choice((10, 700, 3000))}", draw.choice(("", " cpu 0")))
        add(source, f"send {size}b to {target} tag {tag % 3}", thread)
        add(target, f"recv {size}b from {source} tag {tag % 3}")
    text = "\n".join(f"rank {rank} {{\n" + "\n".join(body) + "\n}" for rank, body in enumerate(bodies))
    Path("schedule.goal").write_text(f"num_ranks {ranks}\n\n{text}\n")
    constants = {
        "npus": ranks,
        "L": draw.choice((1000, 2500)),
        "o": draw.choice((0, 200, 1500)),
        "g": draw.choice((0, 5, 1000)),
        "G": draw.choice((0.04, 6)),
        "O": draw.choice((0, 0, 1)),
        "S": draw.choice((0, 1000, 65_535)),
        "rules": draw.choice(("atlahs", "loggopsim")),
    }
    options = {"system": {}, "network": {"loggops": constants}, "model": "loggops"}
    return Drawn("schedule.goal", options)


def exchanges(seed: int) -> Drawn:
    """Return all-to-alls with bytes for each pair, of all ranks and of groups."""
    draw = Random(seed)
    npus = draw.choice(([4], [3], [2, 2], [2, 3], [2, 2, 2]))
    ranks = int(np.prod(npus))
    rules = {"pairs": GroupRule(2)} if ranks % 2 == 0 else {}
    groups: dict[str, list[int]] = {"9": draw.sample(range(ranks), 3)} if ranks > 3 else {}
    builders = [TraceBuilder() for _ in range(ranks)]
    is_grouped = draw.random() < 0.4
    for _ in range(draw.randint(1, 3)):
        group = draw.choice([*rules, *groups, ""]) if is_grouped else ""
        members = 2 if group in rules else len(groups.get(group, range(ranks)))
        matrix = [[draw.choice((0, 1, 999, 60_000)) for _ in range(members)] for _ in range(members)]
        after = {"after": []} if draw.random() < 0.4 else {}
        for rank, build in enumerate(builders):
            if group in groups and rank not in groups[group]:
                continue
            place = groups[group].index(rank) if group in groups else rank % 2 if group else rank
            if draw.random() < 0.2:
                build.compute(nanos=draw.choice((10, 4000)))
            build.collective("all_to_all", group=group, splits=matrix[place], **after)
    traces = tuple(build.build() for build in builders)
    workload = Workload(traces, np.arange(ranks, dtype=np.int32), group_rules=rules)
    own = system(draw.choice(("ring", "direct", "direct2")), len(npus))
    own |= {
        "profile": draw.choice(PROFILES),
        "preferred-dataset-splits": draw.choice((1, 2, 5)),
    }
    net = network([draw.choice(SHAPES) for _ in npus], npus)
    options = {"model": draw.choice(("analytical", "link", "flow")), "detail": draw.choice(DETAILS)}
    options |= {"groups": groups} if groups else {}
    return Drawn(workload, options | {"system": own, "network": net})


def held(seed: int) -> Drawn:
    """Return messages and programs of collectives whose sends wait for receives, some for ever."""
    draw = Random(seed)
    ranks = 3
    inner, builders = ([TraceBuilder() for _ in range(ranks)] for _ in range(2))
    for build in inner:
        build.compute(nanos=draw.choice((1, 700)))
    _add_messages(draw, inner, draw.randint(1, 4))
    write_workload(Workload.of([build.build() for build in inner]), "program")
    for number in range(draw.randint(1, 3)):
        for build in builders:
            if draw.random() < 0.3:
                build.compute(f"work {number}", nanos=draw.choice((10, 3000)))
            if draw.random() < 0.97:
                after = {"after": []} if draw.random() < 0.3 else {}
                build.collective(draw.choice(("all_reduce",) * 9 + ("all_gather",)), 640, **after)
        if draw.random() < 0.3:
            _add_messages(draw, builders, 1)
    own = system("ring", 1, **{"rendezvous-protocol": draw.random() < 0.7})
    own |= {"all-reduce-implementation-custom": ["program"], "num-queues-per-dim": draw.choice((1, 2))}
    own |= {"profile": draw.choice(PROFILES)}
    options = {"system": own, "network": ring(ranks), "detail": draw.choice(DETAILS)}
    options["model"] = draw.choice(("analytical", "link", "flow"))
    return Drawn(Workload.of([build.build() for build in builders]), options)


def _add_messages(draw: Random, builders: list[TraceBuilder], count: int) -> None:
    """Add messages in any order on each rank, without a few of their ends."""
    ranks = range(len(builders))
    made = [(*draw.sample(ranks, 2), draw.choice((8, 4096)), draw.randrange(2)) for _ in range(count)]
    for rank, build in enumerate(builders):
        own = [(True, each) for each in made if each[0] == rank]
        own += [(False, each) for each in made if each[1] == rank]
        draw.shuffle(own)
        for is_sent, (source, target, size, tag) in own:
            after = {"after": []} if draw.random() < 0.2 else {}
            if draw.random() < 0.1:
                continue
            if is_sent:
                build.send(target, size, tag=tag, **after)
            else:
                build.receive(source, size, tag=tag, **after)


def paths(seed: int) -> Drawn:
    """Return a run of another kind with a record of its causes."""
    drawn = PATHS[seed % len(PATHS)](1000 + seed)
    detail = ("path", "path,phases", "path,messages,links")[seed % 3]
    return drawn._replace(options=drawn.options | {"detail": detail}, patched={}, figures=None)


SPECIAL: dict[str, Callable[[int], Drawn]] = {
    "at-once": at_once,
    "advances": advances,
    "levels": levels,
    "ordered": ordered,
    "breaks": breaks,
    "goals": goals,
    "exchanges": exchanges,
    **PACKETS,
    **COMPUTING,
    "held": held,
    "paths": paths,
    **TRACES,
    **MEMORIES,
}
