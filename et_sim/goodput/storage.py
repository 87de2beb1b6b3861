"""A step beside which each rank writes its part of a checkpoint to storage, over the machine's network.

The storage has an NPU for each rank. Its link has that rank's part of the bandwidth of the storage, as far as
it is below that of the rank's own port. In a network of dimensions, these NPUs are in further nodes behind
the switch of the outermost one; in a graph, behind a switch that all switches of the highest tier reach.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc
from msgspec.structs import replace

from et_sim.basics.group_names import group_key
from et_sim.goodput.copies import by_distance
from et_sim.machine import DimensionShape, read_network_alone
from et_sim.machine.graph import SWITCH, Graph
from et_sim.machine.model import GraphFabric, GridFabric, Routing
from et_sim.trace import Trace, TraceBuilder, Workload
from et_sim.trace.builder_nodes import appended
from et_sim.trace.columns import NodeKind
from et_sim.trace.group_rule import GroupRule

if TYPE_CHECKING:
    from et_sim.run.result import Result

WRITE = "write of a checkpoint"
ALL = "all ranks of the step"  # a group
STORAGE = "checkpoint-storage"  # a switch, and the beginning of the names of the NPUs behind it
PEERS = (("comm_src", NodeKind.RECV), ("comm_dst", NodeKind.SEND))
TAG = (1 << 30) - 1  # below those of copies; messages of a step have lower tags


def port_bytes_per_s(network: Mapping[str, Any]) -> float | None:
    """Return the bandwidth of a rank's ports to the outermost switches; None if a network has none.

    A network whose last node is partly filled has no places for storage behind it.
    """
    fabric = read_network_alone(network).fabric
    if isinstance(fabric, GraphFabric):
        return None if "import" in (network.get("graph") or {}) else _port_of_graph(fabric)
    if not isinstance(fabric, GridFabric) or len(fabric.dimensions) < 2 or fabric.filled:
        return None
    outermost = fabric.dimensions[-1]
    return outermost.bytes_per_ns * 1e9 if outermost.shape is DimensionShape.SWITCH else None


def has_ports(network: Mapping[str, Any]) -> bool:
    """Return whether a rank's link between nodes is known: in dimensions, or a graph that is not imported."""
    dimensions = network.get("topology", ())
    return len(dimensions) > 1 if dimensions else port_bytes_per_s(network) is not None


def with_storage(network: Mapping[str, Any], ranks: int, share: float) -> dict[str, Any]:
    """Return a network with an NPU of storage for each rank, whose link has this share of a port."""
    if "topology" not in network:
        return _graph_with_storage(network, ranks, share)
    counts, outermost = list(network["npus_count"]), len(network["npus_count"]) - 1
    counts[outermost] *= 2
    slices = {"dimension": outermost, "at": "0s", "slower": share}
    slower = [{"port": npu, **slices} for npu in range(ranks, 2 * ranks) if share < 1]
    failures = [*network.get("failures", ()), *slower]
    return {**network, "npus_count": counts, **({"failures": failures} if failures else {})}


def _highest(graph: Graph) -> Any:
    """Return the switches of the highest tier."""
    switches = np.flatnonzero(graph.kinds == SWITCH)
    return switches[graph.tiers[switches] == graph.tiers[switches].max(initial=0)]


def _port_of_graph(fabric: GraphFabric) -> float | None:
    """Return the bandwidth from the first NPU to the first switch on its shortest ways to the highest tier:
    of all links, if messages spread over them, or else of the widest.
    """
    steps = _steps_to_the_top(fabric.graph, 0)
    return min(_speed(fabric, links) for links in steps) * 1e9 if steps else None


def _speed(fabric: GraphFabric, links: Any) -> float:
    """Return the bandwidth of parallel links, in bytes per ns."""
    speeds = fabric.graph.bytes_per_ns[links]
    return float(speeds.sum() if fabric.routing is Routing.SPREAD else speeds.max())


def ports_of_graph(network: Mapping[str, Any], ranks: list[int]) -> list[str]:
    """Return the names of the links that limit the bandwidth of ranks to the outermost switches."""
    fabric = read_network_alone(network).fabric
    assert isinstance(fabric, GraphFabric)
    names = fabric.graph.link_names
    slowest = (
        min(_steps_to_the_top(fabric.graph, rank), key=partial(_speed, fabric)).tolist() for rank in ranks
    )
    return sorted({names[link] for links in slowest for link in links})


def _steps_to_the_top(graph: Graph, rank: int) -> list[Any]:
    """Return the links of each step from an NPU to the first switch on shortest ways to the highest tier."""
    npu, top = graph.npus[rank], _highest(graph)
    if not len(top):
        return []
    away = np.full(len(graph), -1)
    away[top], count = 0, 0
    while away[npu] < 0:  # from the highest switches down
        reached = graph.sources[(away[graph.targets] == count) & (away[graph.sources] < 0)]
        if not len(reached):
            return []
        count += 1
        away[reached] = count
    here, steps = np.array([npu]), list[Any]()
    for further in range(count - 1, -1, -1):
        steps.append(np.flatnonzero(np.isin(graph.sources, here) & (away[graph.targets] == further)))
        here = np.unique(graph.targets[steps[-1]])
        if (graph.kinds[here] == SWITCH).all():
            break
    return steps


def _graph_with_storage(network: Mapping[str, Any], ranks: int, share: float) -> dict[str, Any]:
    """Return a graph with NPUs of storage behind a switch that never holds them up."""
    read, names = read_network_alone(network), [f"{STORAGE}{rank}" for rank in range(ranks)]
    fabric = read.fabric
    assert isinstance(fabric, GraphFabric)
    port = _port_of_graph(fabric)
    assert port is not None
    own, all_of_them = min(share, 1.0) * port, ranks * port
    top = [fabric.graph.names[device] for device in _highest(fabric.graph).tolist()]
    links = [
        {"from": names, "to": STORAGE, "bandwidth": f"{own / 1e9!r}GB/s", "latency": "0ns"},
        {"from": STORAGE, "to": top, "bandwidth": f"{all_of_them / 1e9!r}GB/s", "latency": "0ns"},
    ]
    sizes = [dimension.npus for dimension in read.grid.dimensions]
    wider: dict[str, Any] = {
        "npus": [*_listed(network, "npus", "npu"), *names],
        "switches": [*_listed(network, "switches", "switch"), STORAGE],
        "links": [*network.get("links", ()), *links],
        "logical-dimensions": [*sizes[:-1], 2 * sizes[-1]],
    }
    if "ranks" in network:
        given = network["ranks"]
        wider["ranks"] = [*([given] if isinstance(given, str) else given), *names]
    return {**network, **wider}


def _listed(network: Mapping[str, Any], key: str, kind: str) -> list[str]:
    """Return the names of the devices of a key, which may have a number or a single name."""
    given = network.get(key, ())
    if isinstance(given, int):
        return [f"{kind}{number}" for number in range(given)]
    return [given] if isinstance(given, str) else list(given)


def with_writes(workload: Workload, size: int) -> Workload:
    """Return the workload in which each rank also writes `size` bytes, from the beginning of the step on."""
    workload = by_distance(workload)
    ranks, templates, of_rank = workload.ranks, list[Trace](), np.zeros(2 * workload.ranks, np.int32)
    for number, trace in enumerate(workload.templates):
        of_template = np.flatnonzero(workload.template_of_rank == number)
        for first, alike in _with_equal_sides(trace, of_template, ranks):
            of_rank[alike] = len(templates)
            templates.append(_writing(_placed(trace, first, ranks), ranks, size))
    storage = TraceBuilder()
    storage.receive(ranks, size, TAG, name=WRITE, after=[])
    of_rank[ranks:] = len(templates)
    return replace(
        workload,
        templates=(*templates, storage.build()),
        template_of_rank=of_rank,
        relative_peers=(True,) * (len(templates) + 1),
        group_rules={**workload.group_rules, ALL: GroupRule(ranks)},
        has_file_per_rank=False,
        step=None,
    )


def _with_equal_sides(trace: Trace, of_template: Any, ranks: int) -> Iterator[tuple[int, Any]]:
    """Yield ranks whose peers are on the same sides of the last rank, after the first of them."""
    distances = np.unique(np.concatenate([getattr(trace, name)[trace.kind == kind] for name, kind in PEERS]))
    sides = of_template[:, None] + distances >= ranks
    _, first, side = np.unique(sides, axis=0, return_index=True, return_inverse=True)
    for number, at in enumerate(first.tolist()):
        yield int(of_template[at]), of_template[side.reshape(-1) == number]


def _placed(trace: Trace, rank: int, ranks: int) -> Trace:
    """Return the trace of a rank among twice as many ranks, with distances to the same peers."""
    ends: dict[str, Any] = {}
    for name, kind in PEERS:
        ends[name] = getattr(trace, name).copy()
        wraps = (trace.kind == kind) & (rank + ends[name] >= ranks)
        ends[name][wraps] += ranks
    of_all = [number for number, name in enumerate(trace.group_names) if not group_key(name)]
    spans = (trace.kind == NodeKind.COLL) & np.isin(trace.group, of_all)
    group = np.where(spans, len(trace.group_names), trace.group).astype(trace.group.dtype)
    return replace(trace, **ends, group=group, group_names=(*trace.group_names, ALL))


def _writing(trace: Trace, ranks: int, size: int) -> Trace:
    """Return a trace with the write of a rank's part."""
    build, nothing = TraceBuilder(source=trace.source), np.zeros(0, np.int64)
    row = int(trace.node_id.max(initial=0)) + 1
    build.send(ranks, size, TAG, name=WRITE, concurrent=True, node_id=row, after=[])
    return appended(trace, build.build(), nothing, nothing)


def ends_of_step_and_writes(result: Result) -> tuple[int, int]:
    """Return when the last node of the step ends, and when all is written."""
    timeline = result.timeline
    of_step = timeline.filter(pc.not_equal(timeline["name"].cast("string"), WRITE))
    written = result.finish_ns[result.workload.ranks // 2 :]
    return int(pc.max(of_step["end_ns"]).as_py()), int(written.max())
