"""Topologies of other tools, as the lists of a graph file: ns-3, htsim, Garnet, GraphML, JSON node-link,
NCCL and InfraGraph.

An importer returns devices and links in our file's form, and the line of each link.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from et_sim.basics.errors import MachineError, unreadable
from et_sim.documents.reading import MOST_DEVICES, MOST_LINKS, read_bounded, whole_number
from et_sim.machine.garnet_file import import_garnet
from et_sim.machine.infragraph import from_infragraph
from et_sim.machine.nccl_topology import import_nccl_topology
from et_sim.machine.recognise import (
    GARNET,
    GRAPHML,
    HTSIM,
    INFRAGRAPH,
    NCCL,
    NODE_LINK,
    NS3,
    Imported,
    format_of,
    is_infragraph,
    is_node_link,
)
from et_sim.machine.texts import parse_json, parse_yaml


def import_text(text: str, place: str, form: str) -> Imported:
    """Convert a file of one of the formats."""
    if form == NS3:
        return _ns3(text, place)
    if form == HTSIM:
        return _htsim(text, place)
    if form == GARNET:
        return import_garnet(text, place)
    if form == GRAPHML:
        return _graphml(text, place)
    if form == NCCL:
        return import_nccl_topology(text, place)

    if form == INFRAGRAPH:
        return from_infragraph(parse_yaml(text, place), place)
    content = parse_json(text, place)
    if not is_node_link(content):
        raise MachineError(
            "the file is not a graph in node-link form",
            place=place,
            remedy='give the lists "nodes" and "links"',
        )
    return from_node_link(content, place)


def _count(word: str, place: str, line: int) -> int:
    """Return a whole number, or refuse one that exceeds the limit."""
    number = whole_number(word)
    if number is None or number > MOST_LINKS:
        raise MachineError(
            f"{word} is above the limit of numbers in such a file",
            place=f"{place}: line {line}",
            remedy=f"the limit is {MOST_LINKS:,} links, and {MOST_DEVICES:,} devices",
        )
    return number


def _ns3(text: str, place: str) -> Imported:
    """Convert a line of counts, a line of switches, and a line per link: ends, rate, delay, error rate."""
    lines = [(number, line.split()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    nodes, switches, links = (_count(word, place, lines[0][0]) for word in lines[0][1])
    named = [word for _, words in lines[1:2] for word in words] if switches else []
    rows = lines[2 if switches else 1 :]
    if rows and not switches and len(rows) == links + 1:  # an empty list of switches may have its line
        rows = rows[1:]
    numbers = [whole_number(word) for word in named]
    if len(named) != switches or not all(number is not None and number < nodes for number in numbers):
        raise MachineError(
            f"line 1 announces {switches} switches among nodes 0 to {nodes - 1}, and line 2 has "
            f"{' '.join(named[:8]) or 'none'}",
            place=f"{place}: line 2",
            remedy="list the numbers of the switches there",
        )
    if len(rows) != links:
        raise MachineError(
            f"line 1 announces {links} links, and there are {len(rows)}",
            place=f"{place}: line 1",
            remedy="correct the number, or the list",
        )
    of_switch = set(numbers)
    devices = [{"name": f"{n}", "kind": "switch" if n in of_switch else "npu"} for n in range(nodes)]
    listed, at = [], []
    for number, words in rows:
        if len(words) not in (4, 5):
            raise MachineError(
                f"the link has {len(words)} words instead of 4 or 5",
                place=f"{place}: line {number}",
                remedy='write it as "0 8 100Gbps 0.001ms 0"',
            )
        entry = {"from": words[0], "to": words[1], "bandwidth": words[2], "latency": words[3]}
        listed.append(entry)
        at.append(number)
    ends: dict[tuple[str, str], int] = {}
    for entry in listed:  # parallel links need distinct names
        pair = (min(entry["from"], entry["to"]), max(entry["from"], entry["to"]))
        ends[pair] = ends.get(pair, 0) + 1
        if ends[pair] > 1:
            entry["name"] = f"{pair[0]}->{pair[1]}#{ends[pair]}"
    return Imported({"devices": devices, "links": listed}, at)


HTSIM_TIER_KEYS = {
    *("downlink_speed_gbps", "radix_down", "radix_up", "downlink_latency_ns", "switch_latency_ns"),
    *("queue_up", "queue_down", "oversubscribed", "bundle"),
}


def _htsim(text: str, place: str) -> Imported:
    """Convert a fat tree by its tiers; a link into a switch has its own latency and the switch's.

    The links of a bundle become parallel links.
    """
    head, tiers, lines = _htsim_keys(text, place)

    def fail(line: int, cause: str, remedy: str) -> MachineError:
        return MachineError(cause, place=f"{place}: line {line}", remedy=remedy)

    nodes, count = head.get("nodes", 0), head.get("tiers", 0)
    if count not in (2, 3) or len(tiers) != count:
        line = lines.get("tiers", 1)
        raise fail(line, f"it has {len(tiers)} tiers and announces {count}", "describe 2 or 3 tiers")
    for tier, keys in enumerate(tiers):
        for key in ("downlink_speed_gbps", "radix_down", *(("radix_up",) if tier + 1 < count else ())):
            if not keys.get(key):
                raise fail(lines[f"tier {tier}"], f"tier {tier} has no {key}", "give it")
    pod = head.get("podsize", nodes) if count == 3 else nodes
    each = tiers[0]["radix_down"]
    for whole, by, sizes in ((nodes, pod, "nodes by pods"), (pod, each, "hosts of a pod by those of a leaf")):
        if by < 1 or whole % by:
            raise fail(
                lines.get("podsize", lines["nodes"]), f"{whole} {sizes}, {by}, do not divide", "correct them"
            )
    bundle = [keys.get("bundle", 1) for keys in tiers]
    for tier in range(1, count):
        if bundle[tier] < 1 or tiers[tier - 1]["radix_up"] % bundle[tier]:
            raise fail(
                lines[f"tier {tier}"], f"a bundle of {bundle[tier]} does not divide radix_up", "correct it"
            )
    wire = [keys.get("downlink_latency_ns", 0) for keys in tiers]
    inside = [0, *(keys.get("switch_latency_ns", 0) for keys in tiers)]  # NPUs, then switches by tier
    leaves, pods = nodes // each, nodes // pod
    middles = tiers[0]["radix_up"] // bundle[1]
    ways = tiers[1]["radix_up"] // bundle[2] if count == 3 else 0
    made = (
        nodes * bundle[0] + leaves * middles * bundle[1] + middles * pods * ways * (bundle[2] if ways else 0)
    )
    if 2 * made > MOST_LINKS or nodes > MOST_DEVICES:
        cause = f"{nodes:,} nodes and {2 * made:,} links are more than can be simulated"
        raise fail(lines["nodes"], cause, f"the limit is {MOST_LINKS:,} links, and {MOST_DEVICES:,} devices")
    devices: list[dict[str, str]] = [{"name": f"npu{n}", "kind": "npu"} for n in range(nodes)]
    links: list[dict[str, Any]] = []

    def connect(below: str, above: str, tier: int) -> None:
        speed = {"bandwidth": f"{tiers[tier]['downlink_speed_gbps']}Gbps", "one-way": True}
        for number in range(1, bundle[tier] + 1):
            for source, target, into in ((below, above, tier + 1), (above, below, tier)):
                named = {"name": f"{source}->{target}#{number}"} if number > 1 else {}
                ends = {"from": source, "to": target, "latency": wire[tier] + inside[into]}
                links.append({**ends, **named, **speed})

    top = "agg" if count == 3 else "spine"
    devices += [{"name": f"leaf{n}", "kind": "switch"} for n in range(leaves)]
    devices += [{"name": f"{top}{n}", "kind": "switch"} for n in range(middles * pods)]
    for n in range(nodes):
        connect(f"npu{n}", f"leaf{n // each}", 0)
    for leaf in range(leaves):
        for middle in range(middles):
            connect(f"leaf{leaf}", f"{top}{leaf * each // pod * middles + middle}", 1)
    if count == 3:
        devices += [{"name": f"core{n}", "kind": "switch"} for n in range(middles * ways)]
        for agg in range(middles * pods):
            for way in range(ways):
                connect(f"agg{agg}", f"core{agg % middles * ways + way}", 2)
    dimensions = (each, pod // each, pods) if count == 3 else (each, leaves)
    return Imported({"devices": devices, "links": links}, dimensions=dimensions)


def _htsim_keys(text: str, place: str) -> tuple[dict[str, int], list[dict[str, int]], dict[str, int]]:
    """Return the keys before the tiers, those of each tier, and the lines of keys."""
    head: dict[str, int] = {}
    tiers: list[dict[str, int]] = []
    lines: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        key = words[0].lower()
        if len(words) != 2 or not words[1].isdecimal():
            raise MachineError(
                f"{line.strip()!r} is not a key with a whole number",
                place=f"{place}: line {number}",
                remedy='write it as "Radix_Down 8"',
            )
        value = _count(words[1], place, number)
        if key == "tier" and value == len(tiers):
            tiers.append({})
            lines[f"tier {value}"] = number
        elif tiers and key in HTSIM_TIER_KEYS:
            tiers[-1][key] = value
        elif not tiers and key in ("nodes", "tiers", "podsize"):
            head[key], lines[key] = value, number
        else:
            raise MachineError(
                f"{words[0]} {words[1]} is not allowed there",
                place=f"{place}: line {number}",
                remedy="Nodes, Tiers and Podsize come first, then Tier 0, Tier 1, … with their own keys",
            )
    return head, tiers, lines


def _graphml(text: str, place: str) -> Imported:
    import networkx as nx

    try:
        graph = nx.parse_graphml(text)
    except Exception as error:  # parsers of XML raise many types
        raise MachineError(f"not readable as GraphML: {error}", place=place) from None
    return from_networkx(graph, place)


def from_networkx(graph: Any, place: str) -> Imported:
    """Convert the devices and links of a networkx graph."""
    nodes = [{"id": name, **known} for name, known in graph.nodes(data=True)]
    links = [
        {"source": source, "target": target, **known} for source, target, known in graph.edges(data=True)
    ]
    content = {"directed": graph.is_directed(), "nodes": nodes, "links": links}
    return from_node_link(content, place)


def from_node_link(content: dict[str, Any], place: str) -> Imported:
    """Convert JSON in node-link form, as networkx writes it or d3 reads it."""
    for key in ("nodes", "links" if "links" in content else "edges"):
        if not isinstance(content[key], list):
            raise MachineError(
                f'key "{key}" is not a list', place=place, remedy="write its entries between [ and ]"
            )
    one_way = bool(content.get("directed", False))
    devices = []
    for entry in content["nodes"]:
        name = entry.get("id", entry.get("name")) if isinstance(entry, dict) else None
        name = name if isinstance(name, str | int) else None
        kind = str(entry.get("kind", entry.get("type", ""))).lower() if isinstance(entry, dict) else ""
        if name is None or kind not in ("npu", "gpu", "host", "nic", "switch"):
            raise MachineError(
                f"node {name!r} has no kind",
                place=place,
                remedy='give every node the attribute "kind": npu, nic or switch',
            )
        devices.append({"name": str(name), "kind": kind if kind in ("nic", "switch") else "npu"})
    links: list[dict[str, Any]] = []
    seen: dict[tuple[str, str], int] = {}
    for entry in content["links"] if "links" in content else content["edges"]:
        if not isinstance(entry, dict):
            cause = f"link {len(links)} is not an object"
            raise MachineError(cause, place=place, remedy='give every link "source" and "target"')
        ends = (str(entry.get("source")), str(entry.get("target")))
        known = {key: entry[key] for key in ("bandwidth", "latency", "count", "name") if key in entry}
        seen[ends] = seen.get(ends, 0) + 1
        if seen[ends] > 1 and "name" not in known:
            known["name"] = f"{ends[0]}->{ends[1]}#{seen[ends]}"
        links.append({"from": ends[0], "to": ends[1], "one-way": one_way, **known})
    return Imported({"devices": devices, "links": links})


def as_network_file(path: Path, hosts: int) -> tuple[dict[str, Any], tuple[tuple[str, str], ...]]:
    """Return the network file of a topology of NCCL or InfraGraph, and notices on what it does not state."""
    text = read_bounded(path, MachineError).decode("utf-8", "replace")
    form = format_of(text)
    cause, content = "is neither a topology of NCCL nor of InfraGraph", None
    try:
        content = parse_yaml(text, str(path)) if not form else None
    except MachineError as error:
        cause += f": {error.cause}"
    if form != NCCL and not is_infragraph(content):
        remedy = "name the file of NCCL_TOPO_DUMP_FILE; et-sim network takes the formats of other tools"
        raise MachineError(cause, place=str(path), remedy=remedy)
    if form == NCCL:
        imported = import_nccl_topology(text, str(path), hosts)
    elif hosts == 1:
        imported = from_infragraph(content, str(path))
    else:
        remedy = 'leave --hosts out, or change the "count" of an instance'
        raise MachineError("an infrastructure has its hosts in the file", place=str(path), remedy=remedy)
    dimensions = {"logical-dimensions": [*imported.dimensions]} if imported.dimensions else {}
    return {**imported.content, **imported.keys, **dimensions}, imported.notices


def read_import(path: Path, form: str) -> tuple[Imported, bytes]:
    """Read and convert a file; return also its bytes."""
    try:
        raw = read_bounded(path, MachineError)
    except OSError as error:
        raise MachineError(
            f"the imported file cannot be read: {unreadable(error)}", place=str(path)
        ) from None
    text = raw.decode("utf-8", "replace")
    form = form or format_of(text) or NODE_LINK
    return import_text(text, str(path), form), raw
