"""Random machines whose links, ports, NICs, switches, GPUs and nodes fail, and work for them."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
from failing_parts import random_failures, random_machine
from machines import system
from random_cases import Case, actors_of, outcome

from et_sim.basics.errors import InputError
from et_sim.machine import read_network_alone
from et_sim.trace import TraceBuilder, Workload

SHAPES = ("Switch", "Switch", "Ring", "FullyConnected")
SIZES = ((8,), (2, 4), (4, 2), (4, 4))


def failing_case(seed: int, model: str) -> Case:
    """Return work and a machine whose parts fail."""
    draw = Random(seed)
    network = _grid(draw) if draw.random() < 0.5 else _graph(draw, model)
    ranks = read_network_alone(network).ranks
    on = system(
        draw.choice(("ring", "direct", "halvingDoubling")),
        len(network.get("topology", [0])),
        profile=draw.choice(("corrected", "corrected", "reference")),
        **{"preferred-dataset-splits": draw.choice((1, 1, 3))},
    )
    on["all-to-all-implementation"] = ["direct"] * len(network.get("topology", [0]))
    if "failures" not in network or draw.random() < 0.2:
        on["failures"] = [_slow_gpus(draw, ranks)]
    size = draw.choice((ranks, ranks, 2, ranks // 2))  # of groups side by side
    groups = {f"g{first}": [*range(first, first + size)] for first in range(0, ranks - size + 1, size)}
    machine = {"network": network, "system": on, "model": model}
    if size < ranks:
        machine["groups"] = groups
    return Case(_work(draw, ranks, groups), machine)


def _grid(draw: Random) -> dict[str, Any]:
    npus = draw.choice(SIZES)
    network: dict[str, Any] = {
        "topology": [draw.choice(SHAPES) for _ in npus],
        "npus_count": list(npus),
        "bandwidth": [draw.choice(("50GB/s", "9GB/s")) for _ in npus],
        "latency": [draw.choice((0, 500)) for _ in npus],
    }
    failures = [entry for _ in range(draw.choice((0, 1, 1, 2))) for entry in _of_grid(draw, npus)]
    return _with(network, failures, draw)


def _of_grid(draw: Random, npus: tuple[int, ...]) -> list[dict[str, Any]]:
    """Return a failure of one part, or of equal parts that leave ranks alike."""
    ranks, effect = int(np.prod(npus)), _effect(draw)
    kind = draw.choice(("port", "port", "gpu", "node"))
    if kind != "port":
        late = {"at": draw.choice(("20us", "5ms", "5ms"))}
        return [{kind: draw.randrange(ranks // npus[0] if kind == "node" else ranks), **late}]
    dimension = draw.randrange(len(npus))
    step = draw.choice((1, 2, npus[0], ranks))
    return [{"port": npu, "dimension": dimension, **effect} for npu in range(0, ranks, step)]


def _effect(draw: Random) -> dict[str, Any]:
    effect: dict[str, Any] = {"at": f"{draw.choice((0, 1, 7, 20, 60))}us"}
    if draw.random() < 0.7:
        effect["for"] = f"{draw.choice((3, 30, 300))}us"
    if draw.random() < 0.5:
        effect["slower"] = draw.choice((0.1, 0.5))
    return effect


def _graph(draw: Random, model: str) -> dict[str, Any]:
    if draw.random() < 0.4:
        nics = draw.choice((["nic*"], ["nic*"], ["nic1"], ["nic0", "nic2"]))
        failures = [{draw.choice(("nic", "nic", "port")): nic, **_effect(draw)} for nic in nics]
        ends = [
            {**entry, "port": f"{entry['port']}->plane0"} if "port" in entry else entry for entry in failures
        ]
        return _with(behind_nics(draw.choice((4, 6)), draw.choice((1, 2))), ends, draw)
    described = random_machine(draw, model)
    return described | random_failures(draw, described)


def behind_nics(npus: int, planes: int) -> dict[str, Any]:
    """Return NPUs that reach the switches of planes by a NIC each."""
    speed = {"bandwidth": "50GB/s", "latency": "500ns"}
    nics, names = [f"nic{npu}" for npu in range(npus)], [f"plane{plane}" for plane in range(planes)]
    links = [{"from": f"npu{npu}", "to": nic, **speed} for npu, nic in enumerate(nics)]
    links += [{"from": nics, "to": name, **speed} for name in names]
    return {"npus": npus, "nics": nics, "switches": names, "links": links, "logical-dimensions": [npus]}


def _with(network: dict[str, Any], failures: list[Any], draw: Random) -> dict[str, Any]:
    """Return a network with failures that it accepts, and with rules of senders that apply."""
    rules = {"recovery": {"detection": f"{draw.choice((2, 11, 50))}us", "retries": draw.choice((1, 7))}}
    for more in ({"failures": failures, **rules}, {"failures": failures}) if failures else ():
        try:
            read_network_alone({**network, **more})
        except InputError:
            continue
        return {**network, **more}
    return {name: value for name, value in network.items() if name not in ("failures", "recovery")}


def _slow_gpus(draw: Random, ranks: int) -> dict[str, Any]:
    gpus = draw.choice(("0", f"0-{ranks - 1}", f"0-{ranks // 2 - 1}"))
    return {"gpu": gpus, "at": f"{draw.choice((0, 5, 40))}us", "for": "30us", "slower": 0.5}


def _work(draw: Random, ranks: int, groups: dict[str, list[int]]) -> Workload:
    """Return collectives of groups, kernels, and messages to the next rank."""
    names = {rank: name for name, members in groups.items() for rank in members}
    items = [
        draw.choice(("collective", "collective", "kernel", "next" if len(groups) == 1 else "kernel"))
        for _ in range(draw.choice((2, 4)))
    ]
    items[0] = "collective"
    kinds = [draw.choice(("all_to_all", "all_reduce", "all_gather")) for _ in items]
    sizes = [draw.choice((64, 40_000, 1 << 18, 1_000_003)) for _ in items]
    waits = [draw.random() < 0.6 for _ in items]
    traces = []
    for rank in range(ranks):
        build, last = TraceBuilder(), []
        group = names.get(rank, "") if len(groups) > 1 else ""
        for number, item in enumerate(items):
            after = last if waits[number] else []
            if item == "kernel":
                last = [build.compute(f"work{number}", micros=10, after=after)]
            elif item == "next":
                build.send((rank + 1) % ranks, sizes[number], tag=number, after=after)
                last = [build.receive((rank - 1) % ranks, sizes[number], tag=number, after=after)]
            else:
                last = [build.collective(kinds[number], sizes[number], group, after=after)]
        traces.append(build.build())
    return Workload.of(traces)


def results_of(seed: int, model: str) -> tuple[list[Any], bool]:
    """Return the results of a case folded and not, and whether ranks were folded."""
    case = failing_case(seed, model)
    results = [outcome(case, fold) for fold in (True, False)]
    return results, not isinstance(results[0], str) and actors_of(case) < case.workload.ranks
