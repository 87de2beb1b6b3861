"""The DLRM of the study as a layer file, the four systems that train it, and lone all-reduces.

Not here: which runs the study makes, and what it shows of them (`dlrm`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec import Struct

from et_sim import TraceBuilder, Workload, write_workload

FLOPS = 60e12  # of a GPU
MEMORY_BYTES_PER_S = 900e9
BATCH = 512  # samples of a GPU
TABLES, VECTOR, POOLING, DENSE = 64, 64, 60, 1600
BOTTOM = (DENSE, *[1024] * 6, VECTOR)
TOP = (TABLES * (TABLES + 1) // 2 + VECTOR, *[2048] * 11, 1)
VALUE_BYTES = 2
PORTS = 128  # of the study's global switch: a port has this part of its buffer
MIB = 1 << 20
SYSTEMS = ("Flat100G", "Flat800G", "Hier", "HierOpt")
SCALE_UP = {"bandwidth": "1200Gbps", "latency": "500ns"}  # NVLink of a V100: 150 GB/s each way
WINDOW = 500_000
COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")


class Scale(Struct, frozen=True):
    """The size of the study."""

    ranks: int  # of the lone all-reduce
    sizes: tuple[int, ...]
    gpus: int  # of the DLRM
    per_node: int
    narrower: int = 1  # MLPs and batches are so many times smaller
    fewer_chunks: int = 8  # than in the original study
    payload: int = 8948

    def chunks(self, original: int) -> int:
        """Return the number of chunks of a collective, which is also that of chunks under way."""
        return max(1, original // self.fewer_chunks)


FULL = Scale(128, (MIB // 16, MIB // 4, MIB, 4 * MIB, 16 * MIB), gpus=32, per_node=8)
SMALL = Scale(8, (MIB // 32,), gpus=4, per_node=2, narrower=128, fewer_chunks=512)


def layer_file(scale: Scale, gradient_bytes: int = VALUE_BYTES) -> str:
    """Return the layer file of ASTRA-sim 1.0: all GPUs share the embeddings, and each has all MLPs."""
    batch = BATCH // scale.narrower
    vectors = batch * TABLES * VECTOR * VALUE_BYTES
    lookup = round(vectors * POOLING / MEMORY_BYTES_PER_S * 1e9)
    bottom, top = ([max(1, wide // scale.narrower) for wide in widths] for widths in (BOTTOM, TOP))
    rows: list[tuple[str, int, str, int, str, int]] = [("embedding", lookup, "ALLTOALL", vectors, "NONE", 0)]
    rows += _mlp("bottom", bottom, batch, gradient_bytes)
    rows += _mlp("top", top, batch, gradient_bytes)
    lines = [f"HYBRID_DLRM {len(bottom) - 1}", str(len(rows))]
    for name, time, shared, size, reduced, gradient in rows:
        activations = f"{time} {shared} {size}"
        lines.append(f"{name} -1  {activations}  {activations}  {time} {reduced} {gradient}  0")
    return "\n".join(lines) + "\n"


def _mlp(
    name: str, widths: Sequence[int], batch: int, gradient_bytes: int
) -> Iterator[tuple[str, int, str, int, str, int]]:
    for number, (inputs, outputs) in enumerate(pairwise(widths)):
        time = round(2 * batch * inputs * outputs / FLOPS * 1e9)
        yield f"{name}{number}", time, "NONE", 0, "ALLREDUCE", inputs * outputs * gradient_bytes


def one_all_reduce(size: int) -> str:
    """Return a layer file with this collective alone."""
    return f"MICRO\n1\nall-reduce -1  0 NONE 0  0 NONE 0  0 ALLREDUCE {size}  0\n"


def write_same_order(prefix: Path, ranks: int, size: int) -> None:
    """Return a direct all-reduce in which all ranks send to rank 0 first, then to rank 1, and so on."""
    traces = []
    for rank in range(ranks):
        builder = TraceBuilder(source=f"rank {rank}")
        others = [other for other in range(ranks) if other != rank]
        for other in others:
            builder.send(other, size // ranks)
        received = [builder.receive(other, size // ranks) for other in others]
        for other in others:
            builder.send(other, size // ranks, tag=1, after=received)
        for other in others:
            builder.receive(other, size // ranks, tag=1)
        traces.append(builder.build())
    write_workload(Workload.of(traces), prefix)


def lone_system(algorithm: str, same_order: Path | None = None) -> dict[str, Any]:
    """Return a system with one chunk, in which only the network takes time."""
    # The analytical model of the study lets messages share links for free, as the reference's does.
    shared = {"port-bandwidth": False}
    chosen: dict[str, Any] = {"profile": "corrected", "corrections": shared, "endpoint-delay": 0}
    if same_order is not None:
        return chosen | {"all-reduce-implementation-custom": [str(same_order)]}
    return chosen | {"all-reduce-implementation": [algorithm]}


def lone_network(ranks: int, model: str, packets: int = 5500, least_timeout: str = "10ms") -> dict[str, Any]:
    """Return a network of one switch with the TCP of ns-3."""
    star = {"generator": "star", "npus": ranks, "bandwidth": "100Gbps", "latency": "500ns"}
    if model != "packet":
        return {"graph": star}
    tcp = {"window": WINDOW, "least-timeout": least_timeout}
    protocol = {"preset": "ns3-tcp-parity", "buffer": 1 << 40, "queue-packets": packets, "tcp": tcp}
    return {"graph": star, "protocol": protocol}


def system_of(name: str, scale: Scale, chunks: int | None = None, concurrency: int = 64) -> dict[str, Any]:
    """Return the system of ASTRA-sim 1.0; `chunks` and `concurrency` are those of the original study."""
    is_flat = name.startswith("Flat")
    reduce = ["doubleBinaryTree"] if is_flat else ["direct", "direct"]
    chosen: dict[str, Any] = {
        "profile": "astra-1.0",
        "scheduling-policy": "LIFO",
        "endpoint-delay": 0,
        "num-passes": 2,
        "preferred-dataset-splits": scale.chunks(chunks or (1024 if is_flat else 128)),
        "active-chunks-per-dimension": scale.chunks(concurrency),
        "collective-optimization": "localBWAware" if name == "HierOpt" else "baseline",
    }
    algorithms = dict.fromkeys(COLLECTIVES[:-1], reduce) | {"all-to-all": ["direct"] * len(reduce)}
    return chosen | {f"{kind}-implementation": names for kind, names in algorithms.items()}


def network_of(
    name: str,
    scale: Scale,
    model: str = "packet",
    buffer: int = 1024 * MIB,
    is_shared: bool = False,
    window: int = WINDOW,
    injection: str = "0.01us",
) -> dict[str, Any]:
    """Return a network with a switch for all GPUs and, in hierarchical systems, one in each node."""
    out = {"bandwidth": "800Gbps" if name == "Flat800G" else "100Gbps", "latency": "500ns"}
    graph: dict[str, Any] = {"generator": "star", "npus": scale.gpus, **out}
    if not name.startswith("Flat"):
        inner = {"generator": "switch", "npus": scale.per_node, **SCALE_UP}
        graph = {
            "generator": "nested",
            "copies": scale.gpus // scale.per_node,
            "inner": inner,
            "outer": graph,
        }
    if model != "packet":
        return {"graph": graph}
    tcp = {"window": window, "least-timeout": "10ms", "injection-latency": injection}
    protocol: dict[str, Any] = {"preset": "tcp", "payload": scale.payload, "tcp": tcp}
    if is_shared:
        protocol |= {"buffer": buffer * scale.gpus // PORTS, "queue-share": 1}
    else:
        protocol |= {"buffer": 1 << 40, "queue-bytes": buffer // PORTS}
    return {"graph": graph, "protocol": protocol}
