"""Description of a network: devices, links by tier, diameter, bisection, ranks, and paths between some ranks.

The bisection is the largest flow from the lower half of the ranks to the upper half over all links. The NPUs
of each half are merged into one device, and so are devices that no figure separates: each device of a colour
has the same capacity to and from every other colour, so a largest flow can be spread evenly over them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from msgspec.structs import asdict

from et_sim.basics.unique import unique
from et_sim.basics.units import format_bandwidth, format_ns, plural
from et_sim.machine.credits import filled_in
from et_sim.machine.graph import KINDS, NPU, Graph, row_name
from et_sim.machine.model import GraphFabric, Network
from et_sim.machine.trunks import names_of_sets
from et_sim.network.graph_of_grid import as_graph
from et_sim.network.route_tables import RouteTables, route_tables
from et_sim.network.routes import distances_of, names_on, path_between
from et_sim.plan.splitmix import splitmix64

MOST_ARCS = 20_000
LOWER, UPPER = 0, 1


def bisection(graph: Graph) -> float | None:
    """Return the bisection bandwidth in bytes per ns, or None for a graph that is too irregular and large."""
    import networkx as nx

    colours = _merged(graph)
    first, second, capacity = _coloured(graph, colours)
    if len(first) > MOST_ARCS:
        return None
    arcs: Any = nx.DiGraph()
    arcs.add_nodes_from((LOWER, UPPER))
    for source, target, total in zip(first.tolist(), second.tolist(), capacity.tolist(), strict=True):
        arcs.add_edge(source, target, capacity=total)
    return float(nx.maximum_flow_value(arcs, LOWER, UPPER))


def _merged(graph: Graph) -> Any:
    """Return a colour for each device; NPUs of the two halves have colours 0 and 1."""
    half = np.full(len(graph), -1)
    ranks = len(graph.npus)
    half[graph.npus] = np.arange(ranks) >= ranks // 2
    colours = np.where(graph.kinds == NPU, half, 2)
    weight = splitmix64(np.round(graph.bytes_per_ns * 1e6).astype(np.int64), 1)
    count = 0
    while len(unique(colours)) > count:
        count = len(unique(colours))
        mixed = splitmix64(colours, 2)
        seen = splitmix64(colours, 3)
        with np.errstate(over="ignore"):
            np.add.at(seen, graph.sources, splitmix64(mixed[graph.targets] + weight, 4))
            np.add.at(seen, graph.targets, splitmix64(mixed[graph.sources] + weight, 5))
        seen[graph.kinds == NPU] = half[graph.kinds == NPU]
        order = np.unique(seen, return_inverse=True)[1].reshape(-1)
        colours = np.where(graph.kinds == NPU, half, order + 2)
    return colours


def _coloured(graph: Graph, colours: Any) -> tuple[Any, Any, Any]:
    """Return the sources, targets and capacities of the links between colours."""
    pairs = np.stack([colours[graph.sources], colours[graph.targets]])
    keys, row = np.unique(pairs, axis=1, return_inverse=True)
    total = np.bincount(row.reshape(-1), weights=graph.bytes_per_ns, minlength=keys.shape[1])
    apart = keys[0] != keys[1]
    return keys[0][apart], keys[1][apart], total[apart]


MOST_PAIRS = 1 << 22  # limit of pairs whose distances are all computed
MOST_SHOWN = 8
AT_LEAST = 64  # ranks from which distances are computed in a larger network


def describe(network: Network, pairs: Iterable[tuple[int, int]] = ()) -> dict[str, Any]:
    """Return the description as data; `pairs` are the ranks whose path is shown."""
    given, network = network, as_graph(network)
    fabric = network.fabric
    assert isinstance(fabric, GraphFabric)
    graph, routes = fabric.graph, route_tables(network)
    crossed, names = fabric.routed.graph, names_of_sets(graph, fabric.trunks)
    diameter, is_exact = _diameter(graph, routes)
    ranks = len(graph.npus)
    wanted = list(pairs) or list(dict.fromkeys([(0, 1), (0, ranks // 2), (0, ranks - 1)]))
    across = bisection(graph)
    return {
        "npus": ranks,
        "nics": int((graph.kinds == KINDS.index("nic")).sum()),
        "switches": int((graph.kinds == KINDS.index("switch")).sum()),
        "links": len(graph.sources),
        "is_graph": isinstance(given.fabric, GraphFabric),
        "routing": fabric.routing.value,
        "npus_forward": fabric.npus_forward,
        "protocol": None if given.protocol is None else asdict(given.protocol),
        "credits": None
        if given.credits is None
        else asdict(filled_in(given.credits, graph.bytes_per_ns, graph.latency_ns)),
        "in_network": _reducers(given),
        "logical_dimensions": [dimension.npus for dimension in network.grid.dimensions],
        "diameter": diameter,
        "diameter_is_exact": is_exact,
        "bisection_bytes_per_ns": across,
        "tiers": _tiers(graph),
        "paths": [_path(crossed, names, routes, *pair) for pair in wanted if pair[0] != pair[1]],
        "ranks": [graph.names[npu] for npu in graph.npus],
    }


def _reducers(network: Network) -> list[dict[str, Any]]:
    """Return the dimensions, or switches of a graph, that reduce; a rate of None is unlimited."""
    fabric = network.fabric
    reducers = []
    for number, reducer in network.reducers:
        name = fabric.graph.names[number] if isinstance(fabric, GraphFabric) else f"dimension {number}"
        rate = reducer.bytes_per_ns if reducer.bytes_per_ns < math.inf else None
        reducers.append({"name": name, "bytes_per_ns": rate, "latency_ns": reducer.latency_ns})
    return reducers


def _diameter(graph: Graph, routes: RouteTables) -> tuple[int, bool]:
    """Return the links between the NPUs that are farthest apart, and whether all pairs were compared."""
    ranks = len(graph.npus)
    is_exact = ranks * ranks <= MOST_PAIRS
    sources = np.arange(ranks) if is_exact else unique(np.linspace(0, ranks - 1, AT_LEAST).astype(np.int64))
    longest = 0
    for source in sources.tolist():
        hops = np.zeros(ranks, np.int64)
        distances_of(routes, np.full(ranks, source), np.arange(ranks), hops)
        longest = max(longest, int(hops.max()))
    return longest, is_exact


def _tiers(graph: Graph) -> list[dict[str, Any]]:
    """Return the links between each two tiers, in one direction."""
    tiers = []
    low, high = graph.tiers[graph.sources], graph.tiers[graph.targets]
    for low_row, high_row in sorted({(int(a), int(b)) for a, b in zip(low, high, strict=True)}):
        of = (low == low_row) & (high == high_row)
        total = float(graph.bytes_per_ns[of].sum())
        tiers.append(
            {
                "from": row_name(graph, low_row),
                "to": row_name(graph, high_row),
                "links": int(of.sum()),
                "bytes_per_ns": sorted(set(graph.bytes_per_ns[of].tolist())),
                "latency_ns": sorted(set(graph.latency_ns[of].tolist())),
                "total_bytes_per_ns": total,
                "bytes_per_ns_per_npu": total / len(graph.npus),
            }
        )
    return tiers


def _path(graph: Graph, names: list[str], routes: RouteTables, source: int, target: int) -> dict[str, Any]:
    links = path_between(routes, source, target)
    return {
        "source": source,
        "target": target,
        "devices": names_on(graph, links, names),
        "links": [graph.link_names[link] for link in links],
        "latency_ns": float(sum(graph.latency_ns[link] for link in links)),
        "bytes_per_ns": float(min(graph.bytes_per_ns[link] for link in links)),
    }


def as_text(description: dict[str, Any], place: str) -> list[str]:
    """Return the description as lines of text."""
    parts = [plural(description["npus"], "NPU")]
    parts += [plural(description["nics"], "NIC"), plural(description["switches"], "switch", "switches")]
    devices = ", ".join(part for part in parts if not part.startswith("0 "))
    across = description["bisection_bytes_per_ns"]
    few = "" if description["diameter_is_exact"] else "at least "
    rows = [
        ("network", place),
        ("devices", devices),
        ("links", f"{description['links']:,}, each in one direction"),
        ("diameter", f"{few}{plural(description['diameter'], 'link')}"),
        (
            "bisection",
            "not known: irregular and large" if across is None else _halves(description, across),
        ),
        (
            "routing",
            description["routing"]
            + (", NPUs forward" if description["npus_forward"] else ", switches forward"),
        ),
        (
            "dimensions",
            " x ".join(map(str, description["logical_dimensions"])) + " (logical, innermost first)",
        ),
        ("ranks", _placement(description["ranks"])),
    ]
    if description["protocol"]:
        rows.append(("protocol", _packets(description["protocol"])))
    if description["credits"]:
        rows.append(("credits", _flits(description["credits"])))
    if description["in_network"]:
        rows.append(("reduce", _names_of(description["in_network"])))
    lines = [f"{name:<13}{text}" for name, text in rows]
    lines += ["", *_tier_lines(description["tiers"]), ""]
    for path in description["paths"]:
        lines.append(
            f"{path['source']} to {path['target']}: {' > '.join(path['devices'])}: "
            f"{format_ns(path['latency_ns'])}, {format_bandwidth(path['bytes_per_ns'])}"
        )
    return lines


def _packets(protocol: dict[str, Any]) -> str:
    text = f"packets of {protocol['payload']} + {protocol['header']} bytes, "
    size = protocol["acknowledgement"]
    text += f"acknowledgements of {size}, " if size else "acknowledgements of no size, "
    text += "stored and forwarded, " if protocol["store_and_forward"] else ""
    text += "in whole ns, " if protocol["whole_ns"] else ""
    return f"{text}complete at {protocol['completion']}"


def _flits(credits: dict[str, Any]) -> str:
    pipeline = plural(credits["router_cycles"], "cycle")
    return (
        f"packets of {credits['packet']} bytes in flits of {credits['flit']}, routers of {pipeline} of "
        f"{credits['cycle_ps'] / 1000:g} ns, {credits['channels']} channels of {credits['buffer']} flits"
    )


def _halves(description: dict[str, Any], across: float) -> str:
    half = description["npus"] // 2
    share = across / half
    return f"{format_bandwidth(across)} from ranks 0-{half - 1} to the others, {format_bandwidth(share)} each"


def _placement(names: list[str]) -> str:
    if names == [f"npu{rank}" for rank in range(len(names))]:
        return f"0 to {len(names) - 1} are npu0 to npu{len(names) - 1}"
    shown = [f"{rank} is {name}" for rank, name in enumerate(names[:MOST_SHOWN])]
    return ", ".join(shown) + (f", … (all with --json: {len(names)})" if len(names) > MOST_SHOWN else "")


def _names_of(reducers: list[dict[str, Any]]) -> str:
    """Return the rate and latency of the devices that reduce, grouped by equal figures."""
    alike: dict[str, list[str]] = {}
    for reducer in reducers:
        rate = "" if reducer["bytes_per_ns"] is None else f"at {format_bandwidth(reducer['bytes_per_ns'])}, "
        alike.setdefault(f"{rate}{format_ns(reducer['latency_ns'])}", []).append(reducer["name"])
    return "; ".join(f"{_few(names)} ({figures})" for figures, names in alike.items())


def _few(names: list[str]) -> str:
    return ", ".join(names[:MOST_SHOWN]) + (f", … ({len(names)})" if len(names) > MOST_SHOWN else "")


def _tier_lines(tiers: list[dict[str, Any]]) -> list[str]:
    head = ("from", "to", "links", "bandwidth", "latency", "in all", "per NPU")
    rows = [head]
    for tier in tiers:
        figures = [_range(tier["bytes_per_ns"], format_bandwidth), _range(tier["latency_ns"], format_ns)]
        totals = [format_bandwidth(tier[key]) for key in ("total_bytes_per_ns", "bytes_per_ns_per_npu")]
        rows.append((tier["from"], tier["to"], f"{tier['links']:,}", *figures, *totals))
    widths = [max(len(row[at]) for row in rows) for at in range(len(head))]
    return [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def _range(values: list[float], form: Any) -> str:
    return str(form(values[0])) if len(values) == 1 else f"{form(values[0])} to {form(values[-1])}"
