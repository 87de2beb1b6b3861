"""Networks whose links fail within a run, and random cases of them."""

from __future__ import annotations

import re
from math import inf
from random import Random
from typing import Any

from machines import system

from et_sim.api import simulate
from et_sim.basics.errors import InputError
from et_sim.machine import read_network_alone
from et_sim.trace import TraceBuilder, Workload

BYTES = 8_000_000  # take as many ns at 1 GB/s
MS = 1_000_000
SPEED: dict[str, Any] = {"bandwidth": "1GB/s", "latency": "0ns"}
RING = {"topology": ["Ring"], "npus_count": [4], "bandwidth": ["1GB/s"], "latency": [0]}
GRID_LINK = {"dimension": 0, "from": 0, "to": 1}
FIRST_TRY = 1 << 32  # ns: 4.096 us x 2^20


def spines(count: int) -> dict[str, Any]:
    """Return two leaves of one NPU each, whose link is as wide as those of all spines together."""
    links = []
    for spine in range(count):
        links += [{"from": leaf, "to": f"spine{spine}", **SPEED} for leaf in ("leaf0", "leaf1")]
    wide = {"bandwidth": f"{count}GB/s", "latency": "0ns"}
    links += [{"from": f"npu{number}", "to": f"leaf{number}", **wide} for number in range(2)]
    names = ["leaf0", "leaf1", *(f"spine{spine}" for spine in range(count))]
    return {"npus": 2, "switches": names, "links": links, "routing": "spread"}


def ports(count: int) -> dict[str, Any]:
    """Return two NPUs that are joined by switches, with a port to each."""
    names = [f"plane{number}" for number in range(count)]
    links = [{"from": ["npu0", "npu1"], "to": name, **SPEED} for name in names]
    return {"npus": 2, "switches": names, "links": links, "routing": "spread"}


def one_message(
    described: Any, *failures: Any, size: int = BYTES, model: str = "flow", **recovery: Any
) -> int:
    """Return when a message from rank 0 to rank 1 arrives."""
    ranks = read_network_alone(described).ranks
    builders = [TraceBuilder() for _ in range(ranks)]
    builders[0].send(1, size)
    builders[1].receive(0, size)
    times = sent(builders, described, *failures, model=model, **recovery).finish_ns
    return int(times[1])


def sent(
    builders: Any, described: Any, *failures: Any, fold: bool = True, model: str = "flow", **recovery: Any
) -> Any:
    """Return the result of traces on a network with failures."""
    network = dict(described)
    if failures:
        network["failures"] = list(failures)
    if recovery:
        network["recovery"] = {name.replace("_", "-"): value for name, value in recovery.items()}
    workload = Workload.of([builder.build() for builder in builders])
    return simulate(
        workload, network=network, system=system("ring", 1, profile="corrected"), model=model, fold=fold
    )


def random_failures(draw: Random, described: Any) -> dict[str, Any]:
    """Return failures of a random graph, and rules of senders that bound the run."""
    graph = read_network_alone(described).fabric.graph  # type: ignore[union-attr]
    switches = [name for name, kind in zip(graph.names, graph.kinds.tolist(), strict=True) if kind == 2]
    failures = []
    for _ in range(draw.choice((1, 1, 2, 3))):
        kind = draw.choice(("link", "port", "switch") if switches else ("link", "port"))
        name = draw.choice(switches if kind == "switch" else graph.link_names)
        if draw.random() < 0.6:  # the same for all places, which leaves ranks alike
            name = "->".join(
                re.sub(r"\d+$", "*", end) if draw.random() < 0.7 else end for end in name.split("->")
            )
        entry: dict[str, Any] = {kind: name, "at": f"{draw.choice((0, 1, 7, 20, 60))}us"}
        if draw.random() < 0.7:
            entry["for"] = f"{draw.choice((3, 30, 300))}us"
        if draw.random() < 0.4:
            entry["slower"] = draw.choice((0.1, 0.5))
        failures.append(entry)
    recovery = {"detection": f"{draw.choice((2, 11, 50))}us", "retries": draw.choice((1, 7))}
    fail_over = {"fail-over": True, "probe": "1us"} if draw.random() < 0.5 else {}
    for rules in ({"recovery": recovery | fail_over}, {"recovery": recovery}, {}):
        try:
            read_network_alone({**described, "failures": failures, **rules})
        except InputError:  # rules without effect on these failures
            continue
        break
    return {"failures": failures, **rules}


def random_machine(draw: Random, model: str) -> Any:
    """Return a random graph."""
    speed = {"bandwidth": "50GB/s", "latency": "500ns"}
    graph: dict[str, Any] = draw.choice(
        (
            {"generator": "leaf-spine", "leaves": 2, "spines": 2, "npus-per-leaf": 4},
            {"generator": "leaf-spine", "leaves": 4, "spines": 3, "npus-per-leaf": 2},
            {"generator": "fat-tree", "k": 4},
            {"generator": "torus", "sizes": [3, 3]},
            {"generator": "rail-optimised", "nodes": 4, "npus-per-node": 2, "nodes-per-leaf": 2, "spines": 2},
        )
    )
    if graph["generator"] == "rail-optimised":
        graph = {**graph, "inside": {"bandwidth": "450GB/s", "latency": "300ns"}}
    described: dict[str, Any] = {"graph": {**graph, **speed}}
    routing = draw.choice((None, None, "ecmp", "destination", "shortest"))
    if routing and graph["generator"] != "torus":
        described["routing"] = routing
    if draw.random() < 0.2 and model == "flow":
        described["protocol"] = {"preset": "roce"}
    described["logical-dimensions"] = [read_network_alone(described).ranks]
    return described


def random_case(seed: int, model: str = "flow") -> tuple[Workload, dict[str, Any]]:
    """Return collectives, and a machine whose links fail."""
    draw = Random(seed)
    described = random_machine(draw, model)
    described |= random_failures(draw, described)
    build = TraceBuilder()
    for _ in range(draw.choice((1, 2))):
        build.collective(
            draw.choice(("all_to_all", "all_reduce", "all_gather")), draw.choice((1 << 20, 3_000_001))
        )
    on = system(draw.choice(("ring", "direct")), 1, profile="corrected")
    on["all-to-all-implementation"] = ["direct"]
    workload = Workload.of([build.build()] * described["logical-dimensions"][0])
    return workload, {"network": described, "system": on, "model": model}


def in_machine_code(entry: Any, seconds: Any, *arguments: Any) -> Any:  # noqa: ARG001
    """Return what compiled code returns for an entry function."""
    native = entry._found(arguments)
    return (native or entry._made(arguments, inf, waits=inf))(*arguments)
