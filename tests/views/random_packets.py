"""Random small runs of packets that are skipped, known, lost or paused, and of messages on chosen ways."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from machines import KINDS, SHAPES, network, system
from random_runs import Drawn
from random_values import SPEED

from et_sim.run.result import Result
from et_sim.trace import TraceBuilder, Workload

PROFILES = ("reference", "corrected")
STEADY = (("ring", "all_reduce"), ("ring", "all_gather"), ("halvingDoubling", "all_gather"))


def repeats(seed: int) -> Drawn:
    """Return messages of many packets, whose periods are skipped as early as can be."""
    draw = Random(seed)
    ranks = draw.choice((2, 3, 4))
    builders = [TraceBuilder() for _ in range(ranks)]
    for tag in range(draw.randint(1, 3)):
        source, target = draw.sample(range(ranks), 2)
        size = draw.choice((60_000, 250_001, 400_000))
        first = [builders[source].compute(nanos=draw.choice((1, 9_000)), concurrent=True, after=[])]
        builders[source].send(target, size, tag=tag, after=first if draw.random() < 0.5 else [])
        builders[target].receive(source, size, tag=tag, after=[])
    net = draw.choice(
        (
            {"graph": {"generator": "star", "npus": ranks, **SPEED}},
            {"graph": {"generator": "ring", "npus": ranks, **SPEED}},
            network([draw.choice(SHAPES)], [ranks], draw.choice((10.0, 12.5))),
        )
    )
    control = draw.choice(("none", "none", "none", "dcqcn", "dctcp", "timely", "hpcc", "swift"))
    protocol = {
        "preset": draw.choice(("roce", "ns3-parity", "datacenter")),
        "payload": draw.choice((700, 1000)),
        "congestion-control": control,
        "window": draw.choice(("pair", "largest", "none")),
        "completion": draw.choice(("receipt", "acknowledgement")),
        "skip-repeats": draw.random() < 0.85,
    }
    protocol |= draw.choice(({}, {}, {"buffer": 66_000, "reserve": 0, "retransmission-timeout": "200us"}))
    if draw.random() < 0.3:
        protocol["marking"] = [{"bandwidth": "100Gbps", "from": 0, "to": 9000, "probability": 1}]
    detail = draw.choice(("nodes", "nodes", "nodes", "ports", "messages,links"))
    options = {
        "system": system(),
        "network": net | {"protocol": protocol},
        "model": "packet",
        "detail": detail,
    }
    early = {"et_sim.network.packet.repeats.LEAST_EVENTS": 24}
    early |= {"et_sim.network.packet.calendar.LEAST_HEAP": draw.choice((1, 64))}
    workload = Workload.of([build.build() for build in builders])
    return Drawn(workload, options, patched=early, figures=_skipped_packets)


def _skipped_packets(result: Result) -> str:
    return f"skipped={int(result.outcome.run.network.state[0].skipped)}"


def steady(seed: int) -> Drawn:
    """Return like messages on packets, of which known ones take none, and some that meet others."""
    draw = Random(seed)
    ranks = 4
    leaves = {"generator": "leaf-spine", "leaves": 2, "spines": draw.choice((1, 2)), "npus-per-leaf": 2}
    graph = draw.choice(({"generator": "star", "npus": ranks}, {"generator": "ring", "npus": ranks}, leaves))
    algorithm, kind = draw.choice(
        (("ring", "all_reduce"), ("ring", "all_gather"), ("halvingDoubling", "all_gather"))
    )
    builders = [TraceBuilder() for _ in range(ranks)]
    sizes = draw.choice(((160_000,), (160_000, 320_000), (90_000,)))
    late = draw.choice((0, 0, 2_000, 60_000))
    for number in range(draw.choice((2, 3, 5))):
        after = {"after": []} if draw.random() < 0.03 else {}
        size = sizes[number % len(sizes)]
        for build in builders:
            if draw.random() < 0.02:
                build.compute(nanos=draw.choice((1, 500)))
            build.collective(kind, size, **after)
    if late:
        begins = builders[1].compute(nanos=late, after=[], concurrent=True)
        size = draw.choice((40_000, 2_000))
        builders[1].send(3, size, after=[begins], concurrent=True)
        builders[3].receive(1, size, after=[])
    protocol = _steady_protocol(draw)
    net = {"graph": {**graph, **SPEED}, "protocol": protocol, "logical-dimensions": [ranks]}
    own = system(algorithm, **{"preferred-dataset-splits": draw.choice((1, 1, 2))})
    options = {"system": own, "network": net, "model": "packet", "fold": draw.random() < 0.5}
    room = "et_sim.network.packet.roce.known"
    few = {f"{room}.AGREE": draw.choice((2, 2, 3, 16)), f"{room}.LIKE": draw.choice((1, 1, 3))}
    few |= {f"{room}.MEASURED": draw.choice((20, 256))}
    workload = Workload.of([build.build() for build in builders])
    return Drawn(workload, options, patched=few, figures=_known)


def _steady_protocol(draw: Random) -> dict[str, Any]:
    """Return a protocol by which messages are alike."""
    return {
        "preset": draw.choice(("datacenter", "roce")),
        "payload": draw.choice((1000, 2000)),
        "congestion-control": draw.choice(("none", "none", "dcqcn")),
        "window": "none",
        "completion": draw.choice(("receipt", "acknowledgement")),
        "steady": draw.choice((0.05, 0.05, 0.005)),
        "skip-repeats": draw.random() < 0.3,
    }


def _known(result: Result) -> str:
    return f"known={int(result.outcome.run.network.steady[0].messages)}"


def parity(seed: int) -> Drawn:
    """Return collectives of several chunks on packets by the rules of the ns-3 backend, or by others."""
    draw = Random(seed)
    ranks = draw.choice((3, 4))
    build = TraceBuilder()
    for _ in range(draw.randint(1, 3)):
        after = {"after": []} if draw.random() < 0.6 else {}
        if draw.random() < 0.3:
            build.compute(nanos=draw.choice((1, 900)))
        build.collective(draw.choice(KINDS), draw.choice((3000, 40_000, 90_001)), **after)
    graph = {"generator": draw.choice(("star", "ring", "switch")), "npus": ranks, **SPEED}
    protocol: dict[str, Any] = {"preset": draw.choice(("ns3-parity", "ns3-parity", "roce"))}
    protocol |= {"as-ns3": draw.random() < 0.8}
    protocol |= draw.choice(({}, {"payload": 1000}, {"window": "none", "congestion-control": "none"}))
    if draw.random() < 0.75:
        protocol |= {
            "pauses": False,
            "retransmission-timeout": "20us",
            "random-drop": draw.choice((0.05, 0.3)),
        }
        protocol |= {"random-drop-from": 1, "window": "none", "congestion-control": "none"}
    own = system(draw.choice(("ring", "direct", "halvingDoubling")))
    own |= {"preferred-dataset-splits": draw.choice((1, 2, 4)), "num-queues-per-dim": draw.choice((1, 2))}
    own |= {"active-chunks-per-dimension": draw.choice((1, 2, 4)), "profile": draw.choice(PROFILES)}
    own["all-to-all-implementation"] = ["direct"]
    net = {"graph": graph, "protocol": protocol, "logical-dimensions": [ranks]}
    options = {"system": own, "network": net, "model": "packet"}
    options["detail"] = draw.choice(("nodes", "phases,messages", "ports"))
    return Drawn(Workload.of([build.build()] * ranks), options)


def circles(seed: int) -> Drawn:
    """Return messages around a ring whose small buffers pause ports, some in a circle for ever."""
    draw = Random(seed)
    ranks = draw.choice((3, 4, 5))
    builders = [TraceBuilder() for _ in range(ranks)]
    ahead = [draw.randint(1, ranks - 1), ranks // 2]
    for tag, (source, step) in enumerate((source, step) for step in ahead for source in range(ranks)):
        size, target = draw.choice((40_000, 100_000)), (source + step) % ranks
        builders[source].send(target, size, tag=tag, after=[])
        builders[target].receive(source, size, tag=tag, after=[])
    is_tcp = draw.random() < 0.3
    keys: dict[str, Any] = {"buffer": draw.choice((66_000, 80_000)), "reserve": 0}
    if is_tcp:
        keys |= {"preset": "tcp", "pauses": True}
    else:
        keys |= {
            "preset": "datacenter",
            "congestion-control": draw.choice(("none", "dcqcn")),
            "window": "none",
        }
        keys |= {"retransmission-timeout": draw.choice(("200us", "1ms")), "payload": 1000, "window": "none"}
        keys |= {"completion": draw.choice(("receipt", "acknowledgement"))}
        keys |= {"marking": [{"bandwidth": "100Gbps", "from": 0, "to": 1, "probability": 1}]}
    net: dict[str, Any] = {"graph": {"generator": "ring", "npus": ranks, **SPEED}, "protocol": keys}
    if draw.random() < 0.3:
        net["failures"] = [{"link": "npu0->npu1", "at": draw.choice(("5us", "2ms")), "for": "1ms"}]
    options = {"system": system(), "network": net, "model": "packet"}
    options["detail"] = draw.choice(("nodes", "ports", "messages,ports"))
    return Drawn(Workload.of([build.build() for build in builders]), options)


def routings(seed: int) -> Drawn:
    """Return messages on dragonflies of several groups, on ways that a rule of routing chooses."""
    draw = Random(seed)
    graph = {
        "generator": "dragonfly",
        "groups": draw.choice((2, 3, 4)),
        "routers-per-group": draw.choice((1, 2)),
        "npus-per-router": draw.choice((1, 2)),
        "global-links": {"bandwidth": "40Gbps", "latency": draw.choice(("1us", "300ns"))},
        **SPEED,
    }
    ranks = graph["groups"] * graph["routers-per-group"] * graph["npus-per-router"]
    builders = [TraceBuilder() for _ in range(ranks)]
    for tag in range(draw.randint(2, 7)):
        source, target = draw.sample(range(ranks), 2)
        size = draw.choice((1, 5000, 60_000))
        builders[source].send(target, size, tag=tag, after=[])
        builders[target].receive(source, size, tag=tag, after=[])
    if draw.random() < 0.5:
        for build in builders:
            build.collective("all_gather", 4096 * ranks, after=[])
    net: dict[str, Any] = {"graph": graph, "logical-dimensions": [ranks], "seed": draw.choice((1, 5))}
    net["routing"] = draw.choice(("valiant", "valiant", "valiant", "ecmp", "spread", "destination"))
    options = {"system": system(), "network": net, "model": draw.choice(("link", "flow", "packet"))}
    options["detail"] = draw.choice(("nodes", "links", "messages"))
    return Drawn(Workload.of([build.build() for build in builders]), options)


def segments(seed: int) -> Drawn:
    """Return messages over TCP that meet at small queues, under any of its controls and timers."""
    draw = Random(seed)
    ranks = draw.choice((2, 3, 4))
    builders = [TraceBuilder() for _ in range(ranks)]
    for tag in range(draw.randint(1, 6)):
        source = draw.randrange(1, ranks)
        source, target = draw.choice(((source, 0), (source, 0), (0, source)))
        size = draw.choice((1, 1448, 30_000, 120_000, 250_001))
        after = [builders[source].compute(nanos=draw.choice((1, 40_000, 3_000_000)), concurrent=True)]
        builders[source].send(target, size, tag=tag, after=after, concurrent=draw.random() < 0.3)
        builders[target].receive(source, size, tag=tag)
    tcp: dict[str, Any] = {
        "congestion-control": ("newreno", "reno", "cubic", "cubic", "dctcp")[seed % 5],
        "sack": draw.random() < 0.7,
        "first-window": draw.choice((1, 2, 10, 40)),
        "window": draw.choice(("20KB", "64KB", "1MB")),
        "acknowledge-after": draw.choice((1, 1, 2, 3)),
        "acknowledge-within": draw.choice(("10us", "500us")),
        "least-timeout": draw.choice(("200us", "1ms")),
        "first-timeout": draw.choice(("300us", "5ms")),
    }
    rare = {
        "first-threshold": 6,
        "per-message": True,
        "handshake": True,
        "timeout-interval": "100us",
        "clock": "1us",
        "full-packets": True,
        "turns": True,
        "injection-latency": "3us",
        "copying": 0.05,
        "instant-acknowledgements": True,
    }
    tcp |= {name: value for name, value in rare.items() if draw.random() < 0.15}
    loses: dict[str, Any] = draw.choice(
        (
            {},
            {"queue-packets": draw.choice((4, 8, 20))},
            {"random-drop-from": 1, "random-drop": draw.choice((0.02, 0.1, 0.3)), "seed": seed},
            {"marking": [{"bandwidth": "100Gbps", "from": 0, "to": 9000, "probability": 0.5}]},
        )
    )
    graph = {"generator": draw.choice(("star", "star", "ring")), "npus": ranks, **SPEED}
    net = {"graph": graph, "protocol": {"preset": "tcp", "tcp": tcp, **loses}}
    options = {"system": system(), "network": net, "model": "packet"}
    options["detail"] = draw.choice(("nodes", "ports", "messages"))
    return Drawn(Workload.of([build.build() for build in builders]), options)


PACKETS: dict[str, Callable[[int], Drawn]] = {
    "repeats": repeats,
    "steady": steady,
    "parity": parity,
    "circles": circles,
    "routings": routings,
    "segments": segments,
}
