"""Random jobs with rings of neighbours on links of their own, and messages between nodes."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from et_sim.api import run
from et_sim.engine import driver
from et_sim.machine.presets import preset
from et_sim.run.result import Result
from et_sim.trace import GroupRule, Trace, TraceBuilder, Workload

JOBS = ((2, 2), (4, 2), (8, 1), (8, 2), (4, 4), (3, 4), (2, 8))  # ranks of a node, nodes
KINDS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")
MICROS = (1, 1, 2, 5, 17, 40)
SIZES = (8, 1 << 10, 1 << 16, 1 << 20, 3_000_001, 1 << 24)
PACES: tuple[dict[str, Any], ...] = (
    {},
    {"ranks": "1", "compute": 1.3},
    {"ranks": "0", "delay": "7us"},
    {"ranks": "all", "jitter": 0.2, "seed": 3},
)


class RingCase:
    """A job and its machine, run in either way."""

    def __init__(self, seed: int) -> None:
        draw = Random(seed)
        node, nodes = draw.choice(JOBS)
        self.machine = _of_library(draw, node, nodes) if draw.random() < 0.5 else _of_grid(draw, node, nodes)
        rules = {"near": GroupRule(node), "far": GroupRule(nodes, node)}
        trace = _trace(draw, node, nodes)
        self.workload = Workload(
            (trace,), np.zeros(node * nodes, np.int32), relative_peers=(True,), group_rules=rules
        )
        self.machine["network"] = {**self.machine["network"], **_slow_ports(draw, node, nodes)}

    def result(self, patch: pytest.MonkeyPatch, *, ahead: bool, **network: Any) -> Result:
        """Return the result of a run that evaluates rings at once, or not; `network`: its other keys."""
        patch.setattr(driver, "FEWEST_TO_GO_AHEAD", 0 if ahead else 1 << 62)
        keys = {**self.machine["network"], **network}
        machine = {**self.machine, "network": {key: value for key, value in keys.items() if value != []}}
        return run(self.workload, model="flow", fold=False, **machine)

    def slow_ports_as_links(self) -> list[dict[str, Any]]:
        """Return the ports that are slow through the whole run as the key `links` has them; none in rings."""
        network, found = self.machine["network"], dict[Any, dict[str, Any]]()
        for port in network.get("failures", ()):
            number, rank = port["dimension"], port["port"]
            half = halved(network["bandwidth"][number])
            for ends in ({"from": rank, "to": "switch"}, {"from": "switch", "to": rank}):
                if network["topology"][number] != "Switch" or (number, *ends.values()) in found:
                    return []
                found[number, *ends.values()] = {"dimension": number, **ends, "bandwidth": half}
        return [*found.values()]


def halved(bandwidth: Any) -> Any:
    """Return half of a bandwidth, with its unit if it has one."""
    if not isinstance(bandwidth, str):
        return bandwidth / 2
    number, unit = bandwidth[:-4], bandwidth[-4:]
    return f"{float(number) / 2}{unit}"


def seen(result: Result) -> Any:
    """Return all that a result shows: the state of nodes, ends of ranks, messages, and bytes of links."""
    outcome = result.outcome
    load = outcome.load.bytes.tolist() if outcome.load is not None else None
    columns = {name: outcome.nodes[name].tolist() for name in outcome.nodes.dtype.names or ()}
    return result.is_complete, result.finish_ns.tolist(), outcome.messages, load, columns


def _of_library(draw: Random, node: int, nodes: int) -> dict[str, Any]:
    """Return nodes of H100 whose library paces the rings."""
    found = preset(f"h100-dgx:{node * nodes},node={node}")
    keys = dict(found.system)
    del keys["compute"], keys["costs"]
    return {"system": keys | _paces(draw), "network": found.network}


def _of_grid(draw: Random, node: int, nodes: int) -> dict[str, Any]:
    """Return a grid with rings in each dimension."""
    both = nodes > 1
    shapes = [draw.choice(("Ring", "Switch", "FullyConnected")), "Switch"][: 1 + both]
    each = ["ring"] * (1 + both)
    names = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
    keys = {f"{name}-implementation": each for name in names} | {
        "profile": "corrected",
        "scheduling-policy": "LIFO",
        "endpoint-delay": draw.choice((1, 10, 700)),
        "active-chunks-per-dimension": draw.choice((1, 2)),
        "preferred-dataset-splits": 1,
        "local-mem-bw": 50,
    }
    network = {
        "topology": shapes,
        "npus_count": [node, nodes][: 1 + both],
        "bandwidth": [draw.choice((50.0, 33.3, 450.0)), 50.0][: 1 + both],
        "latency": [draw.choice((0.0, 30.0, 500.0)), 600.0][: 1 + both],
    }
    return {"system": keys | _paces(draw), "network": network}


def _paces(draw: Random) -> dict[str, Any]:
    """Return the key of slow ranks, if there are any."""
    pace = draw.choice(PACES)
    return {"stragglers": [pace]} if pace else {}


def _slow_ports(draw: Random, node: int, nodes: int) -> dict[str, Any]:
    """Return the key of ports that are slow through the whole run, if there are any."""
    ports = draw.choice((0, 0, 1, 2))
    dimension = draw.randrange(1 + (nodes > 1))
    slow = [
        {"port": draw.randrange(node * nodes), "dimension": dimension, "at": "0s", "slower": 0.5}
        for _ in range(ports)
    ]
    return {"failures": slow} if slow else {}


def _trace(draw: Random, node: int, nodes: int) -> Trace:
    """Return the program of all ranks."""
    build, made = TraceBuilder(), list[int]()
    only = draw.choice(KINDS[:2])
    for number in range(draw.randint(6, 30)):
        after = sorted({made[-1], draw.choice(made[-4:])}) if made else []
        what = draw.choices(("compute", "beside", "near", "far", "exchange"), (3, 1, 4, 1, 1))[0]
        if what == "near" or (what in ("far", "exchange") and nodes == 1):
            kind = draw.choice(KINDS) if draw.random() < 0.05 else only
            made.append(build.collective(kind, draw.choice(SIZES), group="near", after=after))
        elif what == "far":
            kind = draw.choice(KINDS[:3])
            made.append(build.collective(kind, draw.choice(SIZES), group="far", after=after))
        elif what == "exchange":
            size, distance = draw.choice(SIZES), node * draw.randint(1, nodes - 1)
            sent = build.send(distance, size, tag=number, after=after)
            made += [sent, build.receive(node * nodes - distance, size, tag=number, after=after)]
        else:
            micros, is_beside = draw.choice(MICROS), what == "beside"
            made.append(build.compute(f"work{number}", micros=micros, concurrent=is_beside, after=after))
    return build.build()
