"""Runs for the tests of pictures: small, each with a case that is difficult to draw."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from machines import FIFO_RING, network, ring, sent
from training_jobs import transformer

import et_sim
from et_sim.timeline import OutputFilter, write_run


def layered(
    micros: int, layers: int = 3, names: tuple[str, str] = ("layer {}", "sum {}"), size: int = 1 << 20
) -> et_sim.Trace:
    """Return computations one after the other; the result of each is summed over all ranks."""
    build = et_sim.TraceBuilder()
    for layer in range(layers):
        work = build.compute(names[0].format(layer), micros=micros)
        build.collective("all_reduce", size, name=names[1].format(layer), after=[work])
    return build.build()


def run_written(
    folder: Path, workload: et_sim.Workload, network: Any, system: Any = FIFO_RING, **options: Any
) -> Path:
    """Simulate, and write the run."""
    output_filter = options.pop("output_filter", OutputFilter())
    result = et_sim.simulate(workload, system=system, network=network, **options)
    write_run(result, folder, output_filter=output_filter)
    return folder


def written(workload: et_sim.Workload, folder: Path, **options: Any) -> Path:
    """Simulate on a ring whose links messages share for free, so that equal ranks fold, and write the run."""
    system = FIFO_RING | {"corrections": {"port-bandwidth": False}} | options.pop("system", {})
    return run_written(folder, workload, ring(workload.ranks, "50GB/s"), system, **options)


def pipeline(folder: Path, **options: Any) -> Path:
    """Write eight ranks in two stages that send and receive, with tensor and data parallelism."""
    return written(transformer(tensor=2, pipeline=2, data=2), folder, **options)


def two_dimensions(folder: Path, **options: Any) -> Path:
    """Write eight ranks in two dimensions: sums of pairs, of halves, which cross both, and of all ranks."""
    traces = []
    for rank in range(8):
        trace = et_sim.TraceBuilder()
        pair = trace.collective("all_reduce", 1 << 20, group=f"pair {rank // 2}")
        half = trace.collective("all_reduce", 1 << 20, group=f"half {rank // 4}", after=[pair])
        trace.collective("all_reduce", 1 << 20, after=[half])
        traces.append(trace.build())
    groups = {f"pair {pair}": [2 * pair, 2 * pair + 1] for pair in range(4)}
    groups |= {f"half {half}": [*range(4 * half, 4 * half + 4)] for half in range(2)}
    system = FIFO_RING | {"all-reduce-implementation": ["ring", "ring"]}
    rings = network(["Ring"] * 2, [2, 4], "50GB/s")
    return run_written(folder, et_sim.Workload.of(traces), rings, system, groups=groups, **options)


def side_by_side(folder: Path) -> Path:
    """Write two ranks with computations that overlap, are nested, or take no time, and with memory."""
    build = et_sim.TraceBuilder()
    first = build.compute("outer", nanos=1000, concurrent=True, outputs={"weights": 4096})
    build.compute("inner", nanos=200, concurrent=True, inputs={"weights": 4096}, outputs={"x": 64})
    build.compute("crossing", nanos=1500, concurrent=True, after=[], inputs={"x": 64})
    mark = build.compute("mark", nanos=0, concurrent=True, after=[first])
    build.collective("all_reduce", 1 << 16, name='sum "<b>" ∑', after=[mark], inputs={"weights": 4096})
    workload = et_sim.Workload.of([build.build()] * 2)
    return written(workload, folder, system={"track-local-mem": 1})


def congested(folder: Path, detail: str = "ports") -> Path:
    """Write senders at both leaves of a small buffer: three NPUs at the first and one at the second."""
    workload = sent(8, [(source, 4, 200_000) for source in (0, 1, 2, 5)])
    graph = {"generator": "leaf-spine", "leaves": 2, "spines": 1, "npus-per-leaf": 4}
    protocol = {"preset": "roce", "congestion-control": "none", "buffer": 400_000, "window": "none"}
    network = {"graph": {**graph, "bandwidth": "100Gbps", "latency": "200ns"}, "protocol": protocol}
    return run_written(folder, workload, network, {}, model="packet", detail=detail)


PEAK, BANDWIDTH = 100e12, 1600e9
KERNELS = {"matrix": (4e9, 1 << 20), "copy": (1e6, 1 << 24), "both": (3e9, 3 << 24)}  # operations, bytes


def kernels_on_a_roofline(folder: Path) -> Path:
    """Write two ranks with three kernels, each twice, on a roofline, and with tracked memory."""
    build, after = et_sim.TraceBuilder(), []
    for name, (operations, size) in (*KERNELS.items(), *KERNELS.items()):
        tensors = {"inputs": {"weights": 4096}, "outputs": {f"activation.{len(after)}": 1 << 16}}
        after = [build.compute(name, num_ops=int(operations), tensor_bytes=size, after=after[-1:], **tensors)]
    build.collective("all_reduce", 1 << 16, after=after)
    system = FIFO_RING | {
        "roofline-enabled": 1,
        "peak-perf": PEAK / 1e12,
        "local-mem-bw": BANDWIDTH / 1e9,
        "track-local-mem": 1,
        "local-mem-capacity": "160KiB",
    }
    return run_written(folder, et_sim.Workload.of([build.build()] * 2), ring(2, "50GB/s"), system)
