"""Random small runs of kernels on arrays, on devices and by models of users, which hosts may launch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from machines import ring, system
from random_runs import DETAILS, Drawn

from et_sim.cli import main
from et_sim.trace import TraceBuilder, Workload, shapes


def arrays(seed: int) -> Drawn:
    """Return convolutions and products on a systolic array, and files of layers in the form of SCALE-Sim."""
    draw = Random(seed)
    array: dict[str, Any] = {
        "array-height": draw.choice((1, 4, 16, 32)),
        "array-width": draw.choice((1, 3, 8, 32)),
        **{f"{name}-sram-kb": draw.choice((1, 1, 2, 32)) for name in ("ifmap", "filter", "ofmap")},
        "dataflow": draw.choice(("os", "ws", "is")),
        "rules": draw.choice(("scale-sim", "corrected")),
        "clock-ghz": draw.choice((1, 0.7)),
    }
    array |= {"bandwidth": draw.choice((1, 3, 10, 500))} if draw.random() < 0.7 else {}
    build = TraceBuilder()
    rows = [_layer(draw, number, build) for number in range(draw.randint(1, 4))]
    configuration = _configuration(draw, array)
    model = {"model": "systolic", **array}
    options = {"system": system("ring", 1, compute=model), "network": ring(1), "detail": draw.choice(DETAILS)}
    if draw.random() < 0.2:
        rows = [f"p, {draw.choice((5, 40))}, {draw.choice((3, 20))}, 17{draw.choice((',', ''))}"]

    def reports(folder: Path) -> None:
        Path("array.cfg").write_text(configuration)
        Path("layers.csv").write_text("\n".join(("Layer, sizes,", *rows)))
        words = "systolic layers.csv -c array.cfg --out reports --rules"
        with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as messages:
            main([*words.split(), str(array["rules"])])
        written = [path.read_text() for path in sorted(Path().glob("reports/*.csv"))]
        found = [out.getvalue(), messages.getvalue(), *written]
        (folder / "reports.json").write_text(json.dumps(found))

    return Drawn(Workload.of([build.build()]), options, beside=reports)


def _layer(draw: Random, number: int, build: TraceBuilder) -> str:
    """Add a kernel to a trace, and return the row of a layer."""
    high, wide = draw.randint(1, 4), draw.randint(1, 4)
    image = (high + draw.randint(0, 9), wide + draw.randint(0, 9))
    strides = draw.choice(((1, 1), (2, 2), (high, wide), (1, 3)))
    channels, filters = draw.choice((1, 3, 8)), draw.choice((1, 5, 20))
    made = shapes.convolution(image, (high, wide), channels, filters, strides)
    if draw.random() < 0.4:
        made = shapes.gemm(*(draw.choice((1, 7, 33, 100)) for _ in range(3)))
    build.compute(f"layer {number}", nanos=100, layer_shape=made)
    name = draw.choice(("a", "b", "DPc"))
    sizes = (*image, high, wide, channels, filters, *strides)
    return f"{name}{number}, {', '.join(map(str, sizes))}{draw.choice((',', ',', ''))}"


def _configuration(draw: Random, array: Mapping[str, Any]) -> str:
    """Return the array as SCALE-Sim's file, some with a mistake."""
    rates = [str(draw.choice((1, 4, 50))) for _ in range(draw.choice((1, 1, 1, 3, 3, 2)))]
    lines = [
        "[general]",
        "run_name = drawn",
        "[architecture_presets]",
        f"ArrayHeight: {array['array-height']}",
        f"ArrayWidth : {array['array-width']}",
        *(f"{name}SramSzkB = {array[f'{name.lower()}-sram-kb']}" for name in ("Ifmap", "Filter", "Ofmap")),
        f"Dataflow: {array['dataflow']}",
        f"Bandwidth : {', '.join(rates)}",
        *draw.choice(((), (), ("MemoryBanks: 1",), ("Memory: 1",), ("ArrayWidth: 3",))),
        "[run_presets]",
        f"InterfaceBandwidth: {draw.choice(('CALC', 'USER', 'USER'))}",
    ]
    if draw.random() < 0.1:
        lines.pop(draw.randrange(2, len(lines)))
    return "\n".join(lines)


def plain(seed: int) -> Drawn:
    """Return kernels with their operations and bytes alone, some of datatypes that a device lacks."""
    draw = Random(seed)
    build = TraceBuilder()
    for number in range(draw.randint(2, 6)):
        more = _stated(draw)
        after = {"after": []} if draw.random() < 0.3 else {}
        build.compute(f"k{number}", nanos=draw.choice((0, 40, 5000)), **more, **after)
    if draw.random() < 0.4:
        keys = {"roofline-enabled": 1, "peak-perf": draw.choice((0.001, 10)), "local-mem-bw": 50}
        own = system("ring", 1, **keys)
    else:
        memories: list[dict[str, Any]] = [{"name": "HBM", "bandwidth": 3000}]
        if draw.random() < 0.5:
            memories.append({"name": "L2", "bandwidth": 9000, "capacity": draw.choice(("4KiB", "1MiB"))})
        device = {"model": "roofline", "peaks": {"bf16": 400, "fp32": 60}, "memory": memories}
        device |= {"efficiency": 0.7, "memory-efficiency": draw.choice((0.9, 1)), "launch-overhead": 0}
        device |= {"dtype": draw.choice(("bf16", "fp32"))} if draw.random() < 0.7 else {}
        device |= {"processors": draw.choice((4, 100)), "full-sums": 0.5} if draw.random() < 0.4 else {}
        rules = [device, {"model": "replay"}] if draw.random() < 0.3 else device
        own = system("ring", 1, compute=rules)
    options = {"system": own, "network": ring(2), "detail": draw.choice(DETAILS)}
    return Drawn(Workload.of([build.build()] * 2), options)


def _stated(draw: Random) -> dict[str, Any]:
    """Return what a trace states of a kernel."""
    more: dict[str, Any] = {}
    if draw.random() < 0.7:
        more["num_ops"] = draw.choice((0, 1, 10**6, 10**10))
    if draw.random() < 0.8:
        more["tensor_bytes"] = draw.choice((0, 1, 4096, 10**8))
    if draw.random() < 0.4:
        more["dtype"] = draw.choice(("bf16", "bf16", "fp32", "int8"))
    if draw.random() < 0.3:
        more["layer_shape"] = draw.choice(
            (
                shapes.elementwise(4096, 1, 1),
                shapes.gemm(64, draw.choice((1, 64)), 128),
                shapes.softmax(64, 512),
                shapes.embedding(100, 64),
                shapes.quantise(64, 512),
                shapes.grouped_gemm(64, 32, (10, 30)),
                shapes.attention(1, 4, 64, 64, 32, causal=draw.random() < 0.5),
            )
        )
    return more


def some(kernels: Any) -> Any:
    """Return the times of the kernels of one name."""
    return np.where(kernels.names == "k0", kernels.operations / 8, np.nan)


def stated(kernels: Any) -> Any:
    """Return times of the bytes of kernels."""
    return kernels.bytes * 2.5


def recorded(kernels: Any) -> Any:
    """Return shorter times than the recorded ones."""
    return np.where(kernels.recorded_ns > 300, kernels.recorded_ns / 3, 0.2)


def below_zero(kernels: Any) -> Any:
    """Return times of which some are no times."""
    return kernels.bytes - 300.0


TIMERS = (some, stated, recorded, lambda _: 7, below_zero, lambda _: [1.0], lambda _: None)


def hosts(seed: int) -> Drawn:
    """Return kernels of ranks without a host, which a drawn one launches, some timed by a user's model."""
    draw = Random(seed)
    ranks = 4
    builders = [TraceBuilder() for _ in range(ranks)]
    for number in range(draw.randint(3, 7)):
        what = draw.choice(("kernel", "kernel", "kernel", "gap", "collective", "message"))
        after = {"after": []} if draw.random() < 0.3 else {}
        target = draw.randrange(1, ranks)
        launches = draw.choice((None, None, 0, 2))
        numbered = {} if launches is None else {"launches": launches}
        nanos, size = draw.choice((200, 5000)), draw.choice((10, 4096, 100_000))
        for build in builders:
            if what == "kernel":
                more = {"num_ops": size, "tensor_bytes": nanos}
                build.compute(f"k{number % 3}", nanos=nanos, attributes=numbered, **after, **more)
            elif what == "gap":
                build.compute("gap", nanos=nanos, attributes={"gap": 1}, **after)
            elif what == "collective":
                build.collective("all_reduce", size, **after)
        if what == "message":
            builders[0].send(target, size, tag=number, **after)
            builders[target].receive(0, size, tag=number, **after)
    if draw.random() < 0.3:
        builders[1].compute("operator", nanos=700, cpu=True)
    own = system("ring", 1, profile="corrected")
    own |= {"host-time": draw.choice(("300ns", "2us", 0.5))} if draw.random() < 0.8 else {}
    options: dict[str, Any] = {"system": own, "network": ring(ranks), "detail": draw.choice(DETAILS)}
    options |= {"compute_model": draw.choice(TIMERS)} if draw.random() < 0.6 else {}
    return Drawn(Workload.of([build.build() for build in builders]), options)


COMPUTING: dict[str, Callable[[int], Drawn]] = {"arrays": arrays, "plain": plain, "hosts": hosts}
