"""Random small runs that give every key of a machine: each kind draws keys of its files, and a value of each.

Each key is drawn by itself, so that a further key changes few runs. `test_random_tables.py` holds that no key
is missing. `random_values.py` has the values.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import random_cases
from failing_parts import ports
from machines import KINDS, network, ring, system
from random_networks import devices, transports, uneven
from random_runs import DETAILS, Drawn
from random_values import (
    KEYS,
    LIBRARY,
    OF_LAYERS,
    ROOFLINE,
    SLOWER,
    SPEED,
    STAGE,
    SYSTEM,
    SYSTOLIC,
    WHERE,
    given,
)

from et_sim.machine import read_network_alone
from et_sim.machine.presets import preset
from et_sim.trace import TraceBuilder, Workload, shapes, write_workload


def settings(seed: int) -> Drawn:
    """Return a recorded program with drawn keys of the system, also as samples, on two dimensions."""
    draw = Random(seed)
    keys = given("system file", seed, 0.25, SYSTEM)
    keys |= {"variation": draw.choice(SYSTEM["variation"])} if seed % 2 else {}
    names = [str(name) for key in KEYS["system file"] if key.name == "corrections" for name in key.choices]
    keys["corrections"] = {name: draw.random() < 0.5 for name in names if draw.random() < 0.3}
    algorithms = ("ring", "direct", "halvingDoubling", "doubleBinaryTree", "direct2")
    own = system("ring", 2)
    own |= {
        f"{kind}-implementation": [draw.choice(algorithms), "ring"] for kind in ("all-reduce", "all-gather")
    }
    own["all-to-all-implementation"] = ["direct", "ring"]
    keys.pop("roofline-enabled", None)
    base = {"network": network(["Ring", draw.choice(("Ring", "Switch"))], [4, 2]), "system": own}
    base |= {"model": draw.choice(("analytical", "link", "flow")), "detail": draw.choice(DETAILS)}
    sampled = {"samples": 3, "seed": seed, "detail": "nodes"}

    def with_keys(keys: dict[str, Any]) -> dict[str, Any]:
        return {"system": own | keys} | (sampled if "variation" in keys else {})

    return Drawn(_recorded(draw, 8), base, keys=keys, with_keys=with_keys)


def _recorded(draw: Random, ranks: int) -> Workload:
    """Return kernels on streams, copies, launches and operators of hosts, idle times and collectives."""
    build, made = TraceBuilder(), list[int]()
    for number in range(draw.randint(4, 10)):
        after = draw.sample(made, min(len(made), draw.randint(0, 2)))
        nanos = draw.choice((0, 300, 1500, 4000))
        match draw.choice(
            ("kernel", "kernel", "copy", "launch", "operator", "gap", "collective", "collective", "load")
        ):
            case "kernel":
                stream = {"stream": draw.choice((7, 8))} if draw.random() < 0.5 else {}
                made.append(build.compute(f"gemm {number % 2}", nanos=nanos, after=after, attributes=stream))
            case "copy":
                made.append(
                    build.compute("copy", nanos=nanos, after=after, attributes={"copy": 1, "stream": 7})
                )
            case "launch":
                made.append(
                    build.compute("launch", nanos=nanos, cpu=True, after=after, attributes={"launch": 1})
                )
            case "operator":
                made.append(
                    build.compute("aten::mm", nanos=nanos, cpu=True, after=after, attributes={"tid": 1})
                )
            case "gap":
                made.append(build.compute("gap", nanos=nanos, cpu=True, after=after, attributes={"gap": 1}))
            case "load":
                made.append(build.invalid(f"instant {number}", after=after))
            case _:
                size = draw.choice((64, 4096, 1 << 18))
                concurrent = draw.random() < 0.3
                kind = draw.choice(KINDS)
                made.append(build.collective(kind, size, nanos=nanos, concurrent=concurrent, after=after))
    return Workload((build.build(),), np.zeros(ranks, np.int32), relative_peers=(True,))


TIMES = (
    "operation,size,ns\ngemm,1000,50\ngemm,100000000,9000\n",
    "size,us\n1000,1\n5000000000,40\n",
    "shape,us\ngemm 64 64 64,3\ngemm 256 128 512,9\n",
)


def kernels(seed: int) -> Drawn:
    """Return kernels that rules of models time, a drawn part of them each."""
    draw = Random(seed)
    Path("times.csv").write_text(draw.choice(TIMES))
    Path("parts.csv").write_text("operation,size,efficiency\ngemm,1000,0.1\ngemm,1000000000,0.6\n")
    device = {"model": "roofline", "peaks": {"bf16": 400, "fp8": 800, "fp32": 60}, "dtype": "bf16"}
    device["memory"] = draw.choice(
        (
            [{"name": "HBM", "bandwidth": 3000}],
            [{"name": "HBM", "bandwidth": 2000}, {"name": "L2", "bandwidth": 9000, "capacity": "1MiB"}],
        )
    )
    device |= {"efficiency": 0.7, "memory-efficiency": 0.9, "launch-overhead": "1us"}
    array = {"model": "systolic", "array-height": draw.choice((8, 32)), "array-width": draw.choice((8, 16))}
    array |= {
        "ifmap-sram-kb": 32,
        "filter-sram-kb": 32,
        "ofmap-sram-kb": 32,
        "dataflow": "os",
        "clock-ghz": 1,
    }
    rules = (
        ("model table", {"model": "table", "file": "times.csv", "outside": "leave", "dtype": "bf16"}, {}),
        ("model systolic", array, SYSTOLIC),
        ("model roofline", device, ROOFLINE),
    )
    chosen = [number for number in range(3) if draw.random() < 0.7] or [2]
    keys: dict[str, Any] = {}
    for number in chosen:
        name, _, values = rules[number]
        keys |= {f"{number} {key}": value for key, value in given(name, seed, 0.4, values).items()}
        where = given("where of compute", 3 * seed + number, 0.3, WHERE)
        keys |= {f"{number} where": where} if where and number != 1 else {}
        keys |= {f"{number} label": "own"} if draw.random() < 0.2 else {}

    def with_keys(keys: dict[str, Any]) -> dict[str, Any]:
        compute = [
            rules[number][1]
            | ({"where": {"operation": "gemm"}} if number < 2 else {})
            | {key.split()[1]: value for key, value in keys.items() if key.startswith(f"{number}")}
            for number in chosen
        ]
        last = [{"model": "replay"}] if "where" in compute[-1] else []
        return {"system": system("ring", 1, compute=[*compute, *last])}

    base: dict[str, Any] = {"network": ring(2), "detail": draw.choice(DETAILS)}
    return Drawn(_described(draw, 2), base, keys=keys, with_keys=with_keys)


def _described(draw: Random, ranks: int) -> Workload:
    """Return kernels with their operations, shapes and datatypes."""
    made = (
        shapes.gemm(64, 64, 64),
        shapes.gemm(256, 128, 512),
        shapes.gemm(8, 4096, 4096),
        shapes.gemm(1000, 100, 3000, count=3),
        shapes.grouped_gemm(64, 128, (10, 300)),
        shapes.attention(1, 8, 128, 128, 64, causal=True),
        shapes.attention(2, 8, 512, 512, 64, backward=True, kernel="flash-2"),
        shapes.attention(4, 16, 1, 1024, 64, key_heads=2),
        shapes.softmax(64, 4096),
        shapes.rmsnorm(512, 1024),
        shapes.elementwise(1 << 20, 2, 3),
        shapes.convolution((28, 28), (3, 3), 16, 32, (1, 1)),
    )
    traces = []
    for _ in range(ranks):
        build = TraceBuilder()
        for number in range(draw.randint(4, 9)):
            shape = draw.choice(made)
            more: dict[str, Any] = (
                {"dtype": draw.choice(("bf16", "fp8", "fp32"))} if draw.random() < 0.6 else {}
            )
            more |= {"attributes": draw.choice(({"cold": 1}, {"copy": 1}))} if draw.random() < 0.2 else {}
            if draw.random() < 0.2:
                more |= {"num_ops": 10**8, "tensor_bytes": 10**6}
            name = f"{shape.split()[0]} {number % 2}"
            build.compute(name, nanos=draw.choice((700, 5000)), layer_shape=shape, **more)
        build.collective("all_reduce", 1 << 16)
        traces.append(build.build())
    return Workload.of(traces)


PRESETS = ("h100-dgx:16", "a100-dgx-80gb:16", "mi300x-node:8", "l40s-node:8", "h100-dgx:8", "gb200-nvl72:8")


def libraries(seed: int) -> Drawn:
    """Return collectives of all sizes on presets whose library has drawn keys."""
    draw = Random(seed)
    found = preset(draw.choice(PRESETS))
    keys = given("library", seed, 0.25, LIBRARY)
    for name in ("name", "gpu", "link") if draw.random() < 0.8 else ():
        keys.pop(name, None)
    build = TraceBuilder()
    for number in range(draw.randint(3, 7)):
        kind = draw.choice((*KINDS, "all_reduce", "broadcast", "reduce", "barrier"))
        size = draw.choice((8, 1024, 70_000, 1 << 20, 1 << 26))
        after = {"after": []} if draw.random() < 0.3 else {}
        if draw.random() < 0.4:
            build.compute(
                f"gemm {number}",
                nanos=20_000,
                layer_shape=shapes.gemm(512, 512, 4096),
                dtype="bf16",
                after=[],
            )
        build.collective(kind, size, dtype=draw.choice(("bf16", "int8", "fp32")), **after)
    base = {"system": found.system, "network": found.network, "detail": draw.choice(DETAILS)}
    base["model"] = draw.choice(("analytical", "link", "flow"))
    ranks = read_network_alone(found.network).ranks
    workload = Workload((build.build(),), np.zeros(ranks, np.int32), relative_peers=(True,))
    library = found.system["library"]
    library = {"name": library} if isinstance(library, str) else library
    system_with = lambda keys: {"system": found.system | {"library": library | keys}}  # noqa: E731
    return Drawn(workload, base, keys=keys, with_keys=system_with)


def stages(seed: int) -> Drawn:
    """Return loads, stores and tensors that fill the memory of NPUs, on pools with tiers and shares."""
    draw = Random(seed)
    ranks = draw.choice((2, 4))
    names = ("nic", "switch", "near", "far")
    listed = [
        {"name": name, "count": draw.choice((1, 2, 2 * ranks)), "bandwidth": draw.choice((50, 200))}
        for name in names
    ]
    for number, stage in enumerate(listed):
        stage |= given("entry of stages", 4 * seed + number, 0.4, STAGE)
        if "load" in stage and "store" in stage:
            del stage["bandwidth"]
    pool = {"memory-type": "HIERARCHICAL_POOL", "chunk": draw.choice(("16KiB", "1MiB")), "stages": listed}
    if draw.random() < 0.4:
        pool = {
            "memory-type": "MEMORY_POOL",
            "remote-mem-latency": 100,
            "remote-mem-bw": draw.choice((10, 70)),
        }
    tiers = {"near": ["nic", "switch", "near"], "far": ["nic", "switch", "far"]}
    keys = (
        given("memory file", seed, 0.5, {"tiers": (tiers,), "default-tier": ("far",)})
        if "stages" in pool
        else {}
    )
    keys.pop("memory-type", None)
    for stage in listed if keys.get("sharing") == "fair" else ():
        stage.pop("latency-occupies", None)
    local = {
        "local-mem-capacity": draw.choice((1 << 17, 1 << 22)),
        "when-full": draw.choice(("report", "spill", "stop")),
    }
    local |= draw.choice(({}, {"local-mem-reserved": 4096}))
    own = system("ring", 1) | (local if draw.random() < 0.6 else {})
    build, made = TraceBuilder(), list[int]()
    for number in range(draw.randint(3, 8)):
        after = draw.sample(made, min(len(made), draw.randint(0, 2)))
        size = draw.choice((1, 4096, 1 << 17, 3_000_001))
        tier = {"tier": draw.choice((0, 1))} if "tiers" in keys and draw.random() < 0.5 else {}
        match draw.choice(("load", "store", "kernel", "kernel", "gather" if "stages" in pool else "store")):
            case "load":
                made.append(build.load(size, after=after, **tier))
            case "store":
                made.append(build.store(size, after=after, **tier))
            case "gather":
                made.append(build.load(size, gather="", after=after, **tier))
            case _:
                tensors = {"inputs": {f"x{number % 3}": size}, "outputs": {f"x{(number + 1) % 3}": size}}
                made.append(build.compute(f"k{number}", micros=3, after=after, **tensors))
    base = {"system": own, "network": ring(ranks), "memory": pool, "detail": draw.choice(DETAILS)}
    workload = Workload.of([build.build()] * ranks)
    return Drawn(workload, base, keys=keys, with_keys=lambda keys: {"memory": pool | keys})


LAYERS = (
    "DATA 2 a -1 100 NONE 0 50 NONE 0 200 ALLREDUCE 65536 7 b -1 10 NONE 0 90 NONE 0 20 ALLREDUCE 9000 0",
    "MICRO 1 a -1 10 ALLGATHER 4096 10 NONE 0 1 ALLREDUCE 65536 1",
    "MODEL 2 a -1 5 ALLGATHER 64 5 ALLREDUCE 4096 5 NONE 0 3 b -1 5 NONE 0 70 ALLREDUCE 4096 5 NONE 0 3",
    "HYBRID_DLRM 0 1 emb -1 5 ALLTOALL 640 5 ALLTOALL 0 5 ALLREDUCE 64 0",
)


def layers(seed: int) -> Drawn:
    """Return the training loop of a layer file, or a collective whose program nodes of one name replace."""
    draw = Random(seed)
    keys = given("system file", seed, 0.6, OF_LAYERS)
    keys = {name: value for name, value in keys.items() if name in OF_LAYERS}
    own = system(
        "ring", 2, **{"preferred-dataset-splits": draw.choice((1, 2, 4)), "scheduling-policy": "FIFO"}
    )
    base = {"system": own, "network": network(["Ring", "Switch"], [4, 2]), "detail": draw.choice(DETAILS)}
    Path("layers.txt").write_text(draw.choice(LAYERS))
    return Drawn("layers.txt", base, keys=keys, with_keys=lambda keys: {"system": own | keys})


def own_programs(seed: int) -> Drawn:
    """Return collectives whose members run programs, some by the number of their node."""
    draw = Random(seed)
    for name in ("program", "other"):
        builders = [TraceBuilder() for _ in range(3)]
        step, size = draw.choice((1, 2)), draw.choice((10, 1000))
        for place, builder in enumerate(builders):
            builder.send((place + step) % 3, size, tag=0)
            builder.receive((place - step) % 3, size, tag=0)
        write_workload(Workload.of([builder.build() for builder in builders]), name)
    Path("nodes.yml").write_text(f"{draw.randrange(3)}: other\n")
    build = TraceBuilder()
    for _ in range(3):
        build.collective("all_reduce", draw.choice((9, 3000)), after=[])
    own = {"all-reduce-implementation-custom": ["program"], "per-node-custom-implementation": "nodes.yml"}
    base = {
        "system": system("ring", 1, **own),
        "network": network(["Switch"], [3]),
        "detail": draw.choice(DETAILS),
    }
    return Drawn(Workload.of([build.build()] * 3), base)


def stalls(seed: int) -> Drawn:
    """Return programs of which ranks lack some collectives and messages, so that others wait for ever."""
    draw = Random(seed)
    ranks = draw.choice((2, 3, 4))
    program = random_cases.random_program(draw, ranks)
    builders = []
    for rank in range(ranks):
        lacks = draw.random() < 0.5
        kept = [
            random_cases.Step("instant", step.after, ()) if lacks and draw.random() < 0.4 else step
            for step in program
        ]
        builders.append(random_cases.random_trace(kept, ranks, ("", "", ""), rank % 2, draw.choice((0, 1))))
    own = system(draw.choice(("ring", "direct", "halvingDoubling")), 1)
    own["all-to-all-implementation"] = ["direct"]
    own |= {"rendezvous-protocol": draw.random() < 0.3, "profile": draw.choice(("reference", "corrected"))}
    graph = {"graph": {"generator": "switch", "npus": ranks, **SPEED}, "logical-dimensions": [ranks]}
    found, model = draw.choice(
        ((ring(ranks), "analytical"), (ring(ranks), "link"), (graph, "flow"), (graph, "packet"))
    )
    options = {"system": own, "network": found, "model": model, "detail": draw.choice(DETAILS)}
    traces = Workload(tuple(builders), np.arange(ranks, dtype=np.int32), relative_peers=(True,) * ranks)
    return Drawn(traces, options)


def _failing(draw: Random) -> dict[str, Any]:
    """Return a network of two ports for each rank, or of copies, of which a part fails for a time."""
    if draw.random() < 0.7:
        rules = {"detection": "2us", "retries": 1, "fail-over": True, "probe": draw.choice((0, "1us"))}
        rules |= {"fail-back": draw.choice((0, "5us"))} if draw.random() < 0.5 else {"watchdog": "3us"}
        failure = {"port": "npu0->plane0", "at": "1us", "for": draw.choice(("9us", "90us"))}
        return ports(2) | {"failures": [failure], "recovery": rules}
    inner, outer = ({"generator": "switch", "npus": count, **SPEED} for count in (3, 2))
    graph = {"generator": "nested", "attach": "gateways", "copies": 2, "inner": inner, "outer": outer}
    place = draw.choice(({"rack": "group1"}, {"node": "group0"}))
    return {"graph": graph, "failures": [{**place, "at": draw.choice(("2us", "50us"))}]}


def _rare(draw: Random, number: int) -> tuple[dict[str, Any], Workload | None]:
    """Return options that few machines have, and a workload if any does not do."""
    factors = {"family": "empirical", "factors": draw.choice(([1, 3], [0.5, 1, 9])), "cause": "length"}
    star = {"generator": "star", "npus": 4, **SPEED}
    tiers = {"generator": "fat-tree", "radix": 4, "tiers": 3, "npus": 8, "core-links": SLOWER, **SPEED}
    match number:
        case 0:
            costs = {"price-per-hour": 2.5, "currency": draw.choice(("EUR", "CHF")), "network-watts": 9}
            return {"system": system("ring", 1, costs=costs | {"busy-watts": 700, "idle-watts": 90})}, None
        case 1:
            varied = [{"kind": kind, "level": "event", **factors} for kind in ("kernel", "collective")]
            build = TraceBuilder()
            for nanos in draw.choices((300, 4000), k=5):
                build.compute("gemm", nanos=nanos)
                build.collective("all_reduce", 4096, nanos=2 * nanos, after=[])
            own = system("ring", 1, variation=varied, **{"replay-only": 1})
            options = {"system": own, "samples": 4}
            return options, Workload.of([build.build()] * 4)
        case 2:
            kind = {"row-tile": draw.choice((8, 64)), "tile-time": "1us", "doubling-time": "300ns"}
            device = {
                "model": "roofline",
                "peaks": {"bf16": 400},
                "memory": [{"name": "HBM", "bandwidth": 3000}],
            }
            device |= {"efficiency": 0.7, "memory-efficiency": 0.9, "launch-overhead": 0, "processors": 100}
            device["kinds"] = {"decode_attention": {**kind, "unhidden-part": draw.choice((0.2, 1))}}
            build = TraceBuilder()
            for keys in (64, 1000, 9000):
                sizes = (draw.choice((1, 8)), 16, 1, keys, 128)
                build.compute(layer_shape=shapes.attention(*sizes, key_heads=2), dtype="bf16")
            return {"system": system("ring", 1, compute=device)}, Workload.of([build.build()] * 4)
        case 3:
            return {"network": {"graph": tiers, "logical-dimensions": [8]}}, _recorded(draw, 8)
        case 4:
            ends = {"from": "switch0", "to": draw.choice(("npu1", "npu*")), "bandwidth": "9Gbps"}
            return {"network": {"graph": star, "overrides": [ends]}}, None
    network = _failing(draw)
    return {"network": network, "model": "flow"}, _recorded(draw, 2 if "switches" in network else 6)


def rare(seed: int) -> Drawn:
    """Return kernels, copies and collectives with options that no other kind gives."""
    draw = Random(seed)
    options, workload = _rare(draw, seed % 6)
    base = {"system": system("ring", 1), "network": ring(4), "model": draw.choice(("link", "flow"))}
    return Drawn(workload or _recorded(draw, 4), base | {"detail": "nodes"} | options)


KEYED: dict[str, Callable[[int], Drawn]] = {
    "transports": transports,
    "devices": devices,
    "uneven": uneven,
    "settings": settings,
    "kernels": kernels,
    "libraries": libraries,
    "stages": stages,
    "layers": layers,
    "own-programs": own_programs,
    "stalls": stalls,
    "rare": rare,
}
