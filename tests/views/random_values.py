"""Values of the keys of machines, for random runs that give them; those of a declaration need none here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from random import Random
from typing import Any

from et_sim.documents.keys import Key
from et_sim.reference_page import TABLES

Values = Mapping[str, tuple[Any, ...]]
FILES = ("network file", "system file", "memory file")
KEYS: dict[str, list[Key]] = defaultdict(list)  # of each object of a machine
for table in TABLES:
    if table.name.endswith(FILES) or table.name == "network file of a graph":
        KEYS[table.name.removesuffix(", in the " + table.name.rpartition(", in the ")[2])] += table.keys

PROTOCOL: Values = {
    "payload": (256, 1000, 4096),
    "header": (0, 40, 100),
    "acknowledgement": (0, 64),
    "retransmission-timeout": ("50us", "1ms"),
    "seed": (1, 7),
    "steady": (0, 0.01, 0.3),
    "least-rate": ("100Mbps", "2Gbps"),
    "rate-step": ("50Mbps", "1Gbps"),
    "large-rate-step": ("500Mbps", "5Gbps"),
    "gain": (0.0625, 0.3),
    "buffer": (60_000, 100_000, 400_000),
    "reserve": (0, 2000),
    "resume-below": (0, 3000, 20_000),
    "threshold-shift": (0, 1, 3),
    "queue-packets": (4, 20),
    "queue-bytes": (8000, 40_000),
    "queue-share": (0.25, 1.0),
    "random-drop-from": (4000,),
    "random-drop": (0.01, 0.1),
    "marking": (
        [{"bandwidth": "400Gbps", "from": 5000, "to": 20_000, "probability": 0.2}],
        [{"bandwidth": "100Gbps", "from": 0, "to": 9000, "probability": 1}],
    ),
    "alpha-interval": ("1us", "20us"),
    "decrease-interval": ("2us", "9us"),
    "increase-interval": ("5us", "50us"),
    "recoveries": (0, 1, 5),
    "wanted-use": (0.5, 0.95),
    "most-steps": (0, 3),
    "telemetry-units": (1, 4),
    "low-rtt": ("5us", "20us"),
    "high-rtt": ("30us", "100us"),
    "least-rtt": ("1us", "8us"),
    "dctcp-step": ("1Gbps",),
    "target-rtt": ("5us", "20us"),
    "target-per-hop": (0, "1us"),
    "target-range": (0, "10us"),
    "target-range-from": (0.1, 1),
    "target-range-to": (10, 100),
    "window-step": (0.5, 2),
    "excess-gain": (0.2, 0.8),
    "most-decrease": (0.1, 0.5),
    "least-window": (0.01, 1),
    "most-window": (5, 100),
    "timeouts-to-least": (1, 5),
    "power-weight": (0.1, 0.9),
    "expected-flows": (1, 10),
}
OF_TCP: Values = {
    "first-window": (1, 10, 40),
    "first-threshold": (0, 5, 64),
    "window": ("64KiB", "1MiB"),
    "opening": (1, 40, 100),
    "acknowledge-after": (1, 2, 4),
    "acknowledge-within": ("10us", "1ms"),
    "least-timeout": ("100us", "1ms"),
    "first-timeout": ("1ms",),
    "timeout-interval": (0, "100us"),
    "clock": (0, "1us", "10us"),
    "injection-latency": (0, "1us"),
    "copying": (0, 0.1),
    "gain": (0.0625, 0.5),
}
CREDITS: Values = {
    "flit": (64, 256),
    "packet": (512, 4096),
    "channels": (1, 2, 4),
    "buffer": (2, 16, 64),
    "router-cycles": (1, 3),
    "cycle": ("0.5ns", "1ns", "2ns"),
}
NS3 = """L2_ACK_INTERVAL 1
RP_TIMER 90
RATE_AI 50Mb/s
RATE_HAI 100Mb/s
KMAX_MAP 1 100000000000 160
KMIN_MAP 1 100000000000 4
PMAX_MAP 1 100000000000 0.2
CC_MODE 1
"""
SPEED = {"bandwidth": "100Gbps", "latency": "300ns"}
SLOWER = {"bandwidth": "40Gbps", "latency": "1us"}
PARALLEL = {"bandwidth": "25Gbps", "latency": "500ns", "count": 2}
# Networks to nest, with their number of ranks.
INNER: tuple[dict[str, Any], ...] = (
    {"generator": "ring", "npus": 3, "ranks": 3, **SPEED},
    {"generator": "leaf-spine", "leaves": 2, "spines": 1, "npus-per-leaf": 1, "ranks": 2, **SPEED},
)
GENERATED: Mapping[str, Values] = {  # an entry of more values than one is drawn, the rest is always given
    "ring": {"npus": (3, 5)},
    "mesh": {"sizes": ([2, 3], [4])},
    "torus": {"sizes": ([3, 3], [2, 2, 2], [4])},
    "fully-connected": {"npus": (3, 4)},
    "hybrid-cube-mesh": {},
    "switch": {"npus": (2, 5)},
    "star": {"npus": (3,)},
    "leaf-spine": {"leaves": (2, 3), "spines": (1, 2), "npus-per-leaf": (2,), "uplinks": (SLOWER, PARALLEL)},
    "fat-tree": {
        "radix": (4,),
        "tiers": (2, 3, 3),
        "oversubscription": (1, "1:1"),
        "npus": (4, 8),
        "uplinks": (SLOWER,),
        "core-links": (SLOWER, PARALLEL),
    },
    "rail-optimised": {
        "nodes": (2, 4),
        "npus-per-node": (2, 4),
        "npus-per-nic": (1, 2),
        "nodes-per-leaf": (1, 2),
        "spines": (1, 2),
        "inside": (SLOWER, {**PARALLEL, "generator": "fully-connected"}),
        "uplinks": (SLOWER, PARALLEL),
    },
    "dragonfly": {
        "groups": (2, 3),
        "routers-per-group": (1, 2),
        "npus-per-router": (1, 2),
        "local-links": (SLOWER, PARALLEL),
        "global-links": (SLOWER, PARALLEL),
    },
    "nested": {"copies": (2, 3), "inner": INNER, "outer": ({"generator": "switch", **SLOWER},)},
}
NEEDED = ("sizes", "leaves", "spines", "npus-per-leaf", "radix", "tiers", "nodes", "npus-per-node", "inside")
NEEDED += ("groups", "routers-per-group", "npus-per-router", "copies", "inner", "outer")
GRAPH: Values = {
    "seed": (1, 5),
    "overrides": (
        [{"link": "npu0->*", "bandwidth": "50Gbps"}],
        [{"link": "up*", "latency": "2us"}],
        [{"device": "npu0", "latency": "3us"}],
        [{"from": "*1", "to": "*", "bandwidth": "20Gbps"}],
        [{"between": ["npu0", "*"], "bandwidth": "90Gbps", "latency": "1ns"}],
        [{"between": ["*0", "*1"], "failed": True}],
    ),
    "failures": (
        [{"nic": "nic0*", "at": "2us", "for": "9us"}],
        [{"nic": "*", "at": "1us", "slower": 0.5}],
        [{"rack": "*0", "at": "1us", "for": "20us"}],
        [{"switch": "*", "at": "0us", "for": "4us", "slower": 0.2}],
    ),
    "in-network": ([{"tier": 1, "rate": "20GB/s"}], [{"switches": "*", "latency": "100ns"}]),
    "protocol": ({"preset": "roce"}, {"preset": "datacenter"}),
}
LISTED: tuple[dict[str, Any], ...] = (
    {
        "devices": [
            {"name": name, "kind": kind} for name, kind in (("a", "npu"), ("b", "npu"), ("s", "switch"))
        ],
        "links": [
            {"from": "a", "to": "s", "count": 2, "name": "up", **SPEED},
            {"from": "s", "to": "b", "one-way": True, **SLOWER},
            {"from": "b", "to": "a", "one-way": True, **SPEED},
            {"from": "b", "to": "s", "one-way": True, **SPEED},
        ],
    },
    {
        "npus": 4,
        "switches": ["left", "right"],
        "links": [
            {"from": ["npu0", "npu1"], "to": "left", **SPEED},
            {"from": ["npu2", "npu3"], "to": "right", **SLOWER},
            {"from": "left", "to": "right", **SPEED},
            {"from": "npu0", "to": "npu3", **SLOWER},
        ],
        "ranks": ["npu3", "npu1", "npu2", "npu0"],
        "routes": [{"path": ["npu0", "npu3"]}, {"path": ["npu1", "left", "right", "npu2"]}],
    },
    {
        "npus": 3,
        "nics": 3,
        "switches": 1,
        "links": [
            *({"from": f"npu{number}", "to": f"nic{number}", **SPEED} for number in range(3)),
            {"from": "nic*", "to": "switch0", **SLOWER},
        ],
    },
    {"npus": 3, "links": [{"from": f"npu{at}", "to": f"npu{at + 1}", **SPEED} for at in range(2)]},
)
FAILURES: Values = {
    "at": ("0us", "3us", "40us"),
    "rate": (1e9, 1e10),
    "seed": (3,),
    "for": ("5us", "100us"),
    "slower": (0.1, 0.5),
}
RECOVERY: Values = {
    "detection": ("2us", "30us"),
    "retries": (0, 1, 7),
    "probe": (0, "1us"),
    "fail-back": (0, "20us"),
    "watchdog": ("100us", "1ms"),
}
LOGGOPS: Values = {
    "L": (0, 1000),
    "o": (0, 200),
    "g": (0, 5, 700),
    "G": (0, 0.04, 6),
    "O": (0, 1),
    "S": (0, 1000, 65535),
}


ERRORS = {"basis": "modelled", "random": 0.1, "common": 0.02, "bias": 0.01, "rows": 9}
SYSTEM: Values = {
    "profile": ("reference", "corrected"),
    "preferred-dataset-splits": (1, 3),
    "active-chunks-per-dimension": (1, 3),
    "num-queues-per-dim": (1, 2),
    "endpoint-delay": (0, 10, 500),
    "injection-scale": (0.5, 3),
    "model-shared-bus": (True,),
    "local-reduction-delay": (0, 20),
    "L": (0, 5),
    "o": (0, 7),
    "g": (0, 9),
    "G": (0, 0.1),
    "local-mem-bw": (0, 50),
    "host-time": (0, "2us"),
    "replay-only": (True,),
    "inter-dimension-scheduling": (
        "ascending",
        "roundRobin",
        "offlineGreedy",
        "offlineGreedyFlex",
        "baseline",
    ),
    "intra-dimension-scheduling": ("FIFO", "RG", "smallestFirst", "lessRemainingPhaseFirst"),
    "rings": ([[[0, 1, 2, 3], [3, 1, 0, 2]], [[1, 0]]], [[[0, 2, 1, 3]], []]),
    "stragglers": (
        [{"ranks": "0", "delay": "3us", "node": 2}],
        [{"ranks": "1-2", "compute": 1.3}, {"ranks": "all", "jitter": 0.2, "seed": 4}],
    ),
    "failures": (
        [{"gpu": 1, "at": "2us", "slower": 0.5}],
        [{"node": 0, "at": "1us", "for": "5us", "slower": 0.25}],
        [{"gpu": "0-2", "rate": 1e9, "seed": 2, "slower": 0.1}],
        [{"gpu": 3, "at": "5us"}],
    ),
    "time-factors": (
        [{"ranks": "0-1", "name": "gemm*", "kernels": 0.5}, {"copies": 2, "operators": 3}],
        [{"launches": 2, "gaps": 0, "communication": 0.5}],
    ),
    "streams": (
        [{"name": "s", "takes": ["kernels", "copies"], "at-a-time": 2}],
        [{"name": "a", "takes": ["kernels"], "nodes": "gemm*"}, {"name": "b", "takes": ["host", "sends"]}],
        [
            {"name": "a", "takes": ["collectives"], "group": "all"},
            {"name": "b", "takes": ["loads", "stores"]},
        ],
        [{"name": "a", "takes": ["kernels", "copies"], "stream": 7}],
    ),
    "overlap": ({"kernels": 1.5}, {"copies": 2, "kernels": 1.25}),
    "costs": (
        {"busy-watts": 700, "idle-watts": 100},
        {"price-per-hour": 2.5, "currency": "EUR", "network-watts": 1},
    ),
    "variation": (
        [{"kind": "kernel", "level": "event", "family": "log-normal", "spread": 0.2, "correlation": 0.5}],
        [
            {
                "kind": "collective",
                "level": "step",
                "family": "gamma",
                "spread": 1,
                "shared": "node",
                "factor": 1.1,
            }
        ],
        [
            {
                "kind": "kernel",
                "level": "element",
                "family": "normal",
                "spread": 0.1,
                "operations": ["gemm 0"],
            },
        ],
        [
            {"kind": "kernel", "level": "event", "family": "empirical", "factors": [1, 3], "cause": "length"},
            {
                "kind": "collective",
                "level": "event",
                "family": "empirical",
                "factors": [1, 2],
                "cause": "length",
            },
        ],
        [
            {
                "kind": "link",
                "level": "step",
                "family": "mixture",
                "parts": [{"weight": 9}, {"weight": 1, "factor": 3, "spread": 0.1}],
            },
        ],
        [{"kind": "host", "level": "step", "family": "normal", "spread": 0.2, "shared": "rack"}],
    ),
    "accuracy": (
        dict.fromkeys(("kernels", "recorded", "host", "all", "unmeasured_kernels"), ERRORS),
        {"device": "one"} | dict.fromkeys(("measured", "communication", "memory", "library"), ERRORS),
    ),
}


WHERE: Values = {
    "name": ("gemm*", "attention"),
    "operation": ("gemm", "attention,softmax"),
    "dtype": ("bf16", "fp8"),
    "attribute": ("cold", "stream"),
    "value": (7, 1),
    "ranks": ("0-1", "1"),
    "name-regex": ("gemm [01]", ".*e.*"),
}
ROOFLINE: Values = {
    "efficiency": (0.7, {"gemm": {"peak": 0.8, "half": 10**7}, "attention": 0.5}, {"table": "parts.csv"}),
    "memory-efficiency": (0.8, {"peak": 0.9, "half": 10**5}),
    "launch-overhead": (0, "2us"),
    "processors": (4, 132),
    "tiles": ([[128, 128, 64]], [[128, 256, 64, 0.9], [64, 64, 64]]),
    "prologue": (0, 2),
    "split-k": (2, 8),
    "split-time": ("1us",),
    "query-tile": (64, 128),
    "query-prologue": (0, 32),
    "row-tile": (16, 64),
    "tile-time": (0, "500ns"),
    "doubling-time": ("300ns",),
    "unhidden-part": (0, 0.3),
    "score-operations": (0, 16),
    "exponential-operations": (8,),
    "kinds": (
        {"gemm": {"prologue": 1, "launch-overhead": "1us", "tiles": [[64, 64, 32]], "efficiency": 0.5}},
        {"gemm bf16": {"split-k": 4, "split-time": "2us", "memory-efficiency": 0.4}},
        {"attention": {"query-tile": 32, "query-prologue": 4, "score-operations": 9}},
        {
            "decode_attention": {
                "row-tile": 8,
                "tile-time": "1us",
                "doubling-time": "1us",
                "unhidden-part": 0.2,
            }
        },
    ),
    "attention-kernels": ({"flash-2": {"forward": 0.6, "backward": 0.5}}, {"cudnn": {"forward": 0.5}}),
    "full-sums": (0.5,),
    "power": ({"idle": 90, "limit": 700, "operation": 0.4, "byte": 30},),
    "power-cap": ("300W",),
}
SYSTOLIC: Values = {
    "ifmap-sram-kb": (1, 64),
    "filter-sram-kb": (1, 64),
    "ofmap-sram-kb": (1, 64),
    "bandwidth": (1, 10),
    "clock-ghz": (0.5, 1.7),
}
LIBRARY: Values = {
    "link-speed": (100, "900Gbps"),
    "cards": (1, 4, 8),
    "rings": ({"on-a-node": [4, 20], "between-nodes": [2, 10]}, {"on-a-node": [12, 30]}),
    "choices": ({"all_reduce": [[1, 1024, "tree", "LL"], [1, 1 << 20, "ring", "Simple"]]},),
    "algorithms": (["ring"], ["tree", "ring"], ["nvls", "nvls-tree"], ["collnet-chain", "pat"]),
    "protocols": (["LL"], ["Simple", "LL128"]),
    "calibration": ({}, {"base": 1.2, "step-ll": 2.0}),
    "buffers": ({}, {"slots": 2}, {"direct": True}),
    "most-processors": (1, 8),
}
STAGE: Values = {
    "load": (40, 300),
    "store": (30,),
    "latency": (0, 250),
}


OF_LAYERS: Values = {"num-passes": (2, 3), "compute-scale": (0.5, 2), "comm-scale": (0.5, 3)}


def given(of: str, seed: int, share: float, values: Values | None = None) -> dict[str, Any]:
    """Draw keys of an object, each with this chance, and a value of each."""
    found, values = {}, values or {}
    for key in KEYS[of]:
        draw = Random(f"{of} {key.name} {seed}")
        switch = (True, False) if key.kind.name in ("on/off", "yes/no") else ()
        listed = tuple(map(str, key.choices)) if key.kind.name == "choice" else ()
        if draw.random() < share and (known := values.get(key.name) or switch or listed):
            found[key.name] = draw.choice(known)
    return found
