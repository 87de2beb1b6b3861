"""Small machines of every fabric, and programs with nodes of every kind, for `test_rows_of_tables`."""

from __future__ import annotations

from typing import Any

from machines import network, system

from et_sim.trace import TraceBuilder

LINK = {"bandwidth": "50GB/s", "latency": 500}
TREE = {"generator": "leaf-spine", "leaves": 4, "spines": 1, "npus-per-leaf": 2, **LINK}
MARKS = [{"tier": 1, "latency": 100}, {"tier": 2, "latency": 100}]
NETWORKS: dict[str, dict[str, Any]] = {
    "switch": network(["Switch"], [8]) | {"in-network": [{"dimension": 0, "latency": 100}]},
    "rings": network(["Ring", "FullyConnected"], [4, 2]),
    "tree": {"graph": TREE, "in-network": MARKS, "logical-dimensions": [8]},
    "two spines": {"graph": TREE | {"spines": 2}, "logical-dimensions": [8]},
    "mesh": {"graph": {"generator": "hybrid-cube-mesh", **LINK}},
}
IN_NETWORK = system(
    "inNetwork",
    **{
        "all-to-all-implementation": ["direct"],
        "broadcast-implementation": "inNetwork",
        "corrections": {"simulated-broadcast": True},
    },
)
RINGS = system(rings=[[[0, 3, 2, 1, 5, 6, 7, 4]]], profile="corrected")
SYSTEMS = {
    "switch": (IN_NETWORK,),
    "rings": (system("halvingDoubling", dimensions=2, profile="corrected"),),
    "tree": (IN_NETWORK, system("doubleBinaryTree", **{"all-to-all-implementation": ["direct"]})),
    "two spines": (system("doubleBinaryTree", **{"all-to-all-implementation": ["ring"]}),),
    "mesh": (RINGS,),
}
GROUPS = {"low": [0, 1, 2, 3], "high": [4, 5, 6, 7]}


def programs() -> list[TraceBuilder]:
    """Return kernels, messages in a circle, and collectives of all ranks and of both halves."""
    builders = [TraceBuilder() for _ in range(8)]
    for rank, build in enumerate(builders):
        last = [build.compute(nanos=100)]
        for kind in ("all_reduce", "broadcast"):
            last = [build.collective(kind, 1 << 12, "low" if rank < 4 else "high", after=last)]
        for kind in ("all_to_all", "broadcast"):
            last = [build.collective(kind, 1 << 12, after=last)]
        build.send((rank + 1) % 8, 1 << 12, after=last)
        build.receive((rank - 1) % 8, 1 << 12, after=last)
    return builders
