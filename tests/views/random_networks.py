"""Random small runs over protocols, graphs and dimensions with drawn keys."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import random_cases
from machines import KINDS, network, system
from random_runs import DETAILS, Drawn, incasts
from random_values import (
    CREDITS,
    FAILURES,
    GENERATED,
    GRAPH,
    LISTED,
    LOGGOPS,
    NEEDED,
    NS3,
    OF_TCP,
    PROTOCOL,
    RECOVERY,
    SLOWER,
    SPEED,
    given,
)

from et_sim.machine import read_network_alone
from et_sim.machine.congestion import ROCE, TCP
from et_sim.network.description import as_text, describe
from et_sim.trace import TraceBuilder, Workload


def transports(seed: int) -> Drawn:
    """Return large messages of several senders to few receivers, over a protocol with drawn keys."""
    drawn, draw = incasts(seed), Random(seed)
    if seed % 3 == 1:
        build = TraceBuilder()
        for _ in range(draw.choice((1, 2))):
            build.collective(draw.choice(KINDS), draw.choice((1000, 70_000)), after=[])
        drawn = drawn._replace(workload=Workload.of([build.build()] * drawn.workload.ranks))
    graph = {"graph": drawn.options["network"]["graph"]}
    if seed % 4 == 3:
        keys = given("credits", seed, 0.5, CREDITS)
        return drawn._replace(keys=keys, with_keys=lambda keys: {"network": {**graph, "credits": keys}})
    kind = "tcp" if seed % 4 == 2 else "roce"
    presets = {"tcp": ("tcp", "ns3-tcp-parity", "htsim-parity"), "roce": ("roce", "datacenter", "ns3-parity")}
    controls = sorted(TCP if kind == "tcp" else ROCE)
    control = {"congestion-control": controls[seed // 4 % len(controls)]}
    keys = given("protocol", seed, 0.25, PROTOCOL) | (control if kind == "roce" else {})
    usual = {"preset": draw.choice(presets[kind]), "retransmission-timeout": "200us"}
    if kind == "roce" and draw.random() < 0.2:
        Path("ns3.txt").write_text(NS3)
        usual = {"file": "ns3.txt"}
    keys.pop("preset", None)
    if kind == "roce" and keys.get("steady"):  # rates must be constant, and no window may limit messages
        keys |= {"congestion-control": "none", "window": "none"}
    if kind == "tcp":
        keys = {"tcp": given("tcp of the protocol", seed, 0.3, OF_TCP) | control, **keys}
    return drawn._replace(keys=keys, with_keys=lambda keys: {"network": {**graph, "protocol": usual | keys}})


def devices(seed: int) -> Drawn:
    """Return messages and collectives on graphs of every generator, and on listed ones, with drawn keys."""
    draw = Random(seed)
    if seed % 4 == 3:
        graph: dict[str, Any] = dict(draw.choice(LISTED))
    else:
        name = [*GENERATED][(seed - seed // 4) % len(GENERATED)]
        keys = {
            key: draw.choice(values)
            for key, values in GENERATED[name].items()
            if key in NEEDED or draw.random() < 0.6
        }
        if "npus" in GENERATED[name] and name != "fat-tree":
            keys["npus"] = draw.choice(GENERATED[name]["npus"])
        keys |= draw.choice(({}, {}, {"nic": SLOWER}, {"count": 2})) if name != "nested" else {}
        if name == "fat-tree" and keys["tiers"] == 2:
            keys.pop("core-links", None)
        if name == "nested":
            keys["attach"] = draw.choice(("npus", "rails", "rails", "gateways"))
            members = keys["copies"] * (keys["inner"]["ranks"] if keys["attach"] == "npus" else 1)
            keys["inner"] = {key: value for key, value in keys["inner"].items() if key != "ranks"}
            keys["outer"] = {**keys["outer"], "npus": members}
        graph = {"graph": {"generator": name, **keys, **(SPEED if name != "nested" else {})}}
    more = given("network file of a graph", seed, 0.3, GRAPH)
    ranks = read_network_alone(graph).ranks
    base = {"system": system(draw.choice(("ring", "direct")), 1, profile="corrected")}
    base["system"]["all-to-all-implementation"] = ["direct"]
    base |= {"model": draw.choice(("link", "flow", "packet")), "detail": draw.choice(DETAILS)}
    base |= {"network": graph | {"logical-dimensions": [ranks]}}
    reduces = {"all-reduce-implementation": ["inNetwork"]}

    def with_keys(keys: dict[str, Any]) -> dict[str, Any]:
        own = base["system"] | (reduces if "in-network" in keys else {})
        return {"network": base["network"] | keys, "system": own}

    def described(folder: Path) -> None:
        network = read_network_alone(base["network"])
        about = describe(network, [(0, network.ranks - 1)])
        text = json.dumps([about, as_text(about, "network")])
        (folder / "described.json").write_text(text, encoding="utf-8")

    return Drawn(_program(draw, ranks), base, keys=more, with_keys=with_keys, beside=described)


def uneven(seed: int) -> Drawn:
    """Return a program on dimensions with links of their own, parts that fail, or constants of LogGOPS."""
    draw = Random(seed)
    if seed % 4 == 3:
        keys = given("loggops", seed, 0.6, LOGGOPS)
        constants = {"npus": 4, "L": 1000, "o": 200, "g": 5, "G": 0.04, "S": 0, **keys}
        base = {"system": system("ring", 1), "network": {"loggops": constants}, "model": "loggops"}
        return Drawn(_messages(draw, 4), base)
    shapes_of, npus = draw.choice(
        ((["Switch", "Switch"], [4, 2]), (["Ring"], [4]), (["FullyConnected"], [3]))
    )
    found = network(shapes_of, npus, latency=draw.choice((0.0, 500.0)))
    ranks = int(np.prod(npus))
    keys = system("ring", len(npus), profile=draw.choice(("corrected", "reference")))
    if len(npus) == 2 and draw.random() < 0.4:
        ranks = found["npus"] = draw.choice((6, 7))
        keys["profile"] = "corrected"
    more: dict[str, Any] = {}
    end = "switch" if shapes_of[0] == "Switch" else 1
    link = {"dimension": 0, "from": 0, "to": end}
    if draw.random() < 0.6:
        more["links"] = [
            {**link, **draw.choice(({"bandwidth": 5}, {"latency": "2us"}, {"bandwidth": 1, "latency": 0}))}
        ]
    if shapes_of[0] == "Switch" and draw.random() < 0.4:
        more["in-network"] = [
            {"dimension": 0, **draw.choice(({}, {"rate": 10}, {"rate": 30, "latency": 100}))}
        ]
    place = draw.choice((link, {"dimension": 0, "port": 1}, {"gpu": 1}, {"node": 0}))
    failure = given("entry of failures", seed, 0.6, FAILURES)
    more["failures"] = [{**place, **(failure or {"at": "1us"})}]
    more["recovery"] = given("recovery", seed, 0.6, RECOVERY)
    base = {
        "system": keys,
        "model": draw.choice(("analytical", "link", "flow")),
        "detail": draw.choice(DETAILS),
    }
    reduces = {"all-reduce-implementation": ["inNetwork", "ring"]}

    def with_keys(more: dict[str, Any]) -> dict[str, Any]:
        return {"network": found | more, "system": keys | (reduces if "in-network" in more else {})}

    return Drawn(_program(draw, ranks), base | {"network": found}, keys=more, with_keys=with_keys)


def _program(draw: Random, ranks: int) -> Workload:
    """Return a random program that all ranks run."""
    program = random_cases.random_program(draw, ranks)
    trace = random_cases.random_trace(program, ranks, ("", "", ""), 0, 0)
    return Workload((trace,), np.zeros(ranks, np.int32), relative_peers=(True,))


def _messages(draw: Random, ranks: int) -> Workload:
    """Return kernels and messages between random pairs."""
    builders = [TraceBuilder() for _ in range(ranks)]
    for tag in range(draw.randint(3, 9)):
        source, target = draw.sample(range(ranks), 2)
        size = draw.choice((0, 1, 999, 1001, 65535, 100_000))
        after = {"after": []} if draw.random() < 0.5 else {}
        if draw.random() < 0.4:
            builders[source].compute(nanos=draw.choice((10, 3000)), cpu=True)
        builders[source].send(target, size, tag=tag, **after)
        builders[target].receive(source, size, tag=tag, **after)
    return Workload.of([builder.build() for builder in builders])
