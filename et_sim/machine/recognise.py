"""What kind of configuration file some content is, ours or another tool's, so that a mix-up is named instead
of a strange key.

Not here: whether the content is valid, and how files of other tools are read (`other_topologies`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, field

from et_sim.basics.errors import MachineError
from et_sim.machine.corrections import Profile
from et_sim.machine.network_file import NETWORK_KEYS
from et_sim.machine.remote_memory import MEMORY_KEYS
from et_sim.machine.system import COLLECTIVES
from et_sim.machine.system_file import SYSTEM_KEYS


class Role(StrEnum):
    """The four files that describe a machine."""

    SYSTEM = "system"
    NETWORK = "network"
    MEMORY = "memory"
    GROUPS = "groups"


_SIGNS: dict[Role, frozenset[str]] = {
    Role.SYSTEM: frozenset(key.name for key in SYSTEM_KEYS),
    Role.NETWORK: frozenset(key.name for key in NETWORK_KEYS),
    Role.MEMORY: frozenset(key.name for key in MEMORY_KEYS),
}
# Keys that only a network file of ASTRA-sim 1.0 has.
NETWORK_1_SIGNS = frozenset({"topology-name", "topologies-per-dim", "dimensions-count"})
# Keys that only a network file has that describes a graph.
GRAPH_SIGNS = frozenset({"graph", "npus", "switches", "nics", "devices", "nodes"})
LOGGOPS_SIGNS = frozenset({"loggops"})  # and one with the constants of LogGOPS


def refuse_other_role(content: Mapping[str, Any], expected: Role, place: str) -> None:
    """Raise if the content is plainly another file than the expected one."""
    if expected is Role.NETWORK and not content.keys().isdisjoint(
        NETWORK_1_SIGNS | GRAPH_SIGNS | LOGGOPS_SIGNS
    ):
        return
    if expected is Role.GROUPS and _is_of_ranks(content):
        return
    if expected is not Role.GROUPS and not content.keys().isdisjoint(_SIGNS[expected]):
        return
    actual = role_of(content)
    if actual is not None and actual is not expected:
        raise mixed_up(actual, expected, place)


def _is_of_ranks(content: Mapping[str, Any]) -> bool:
    """Return whether all values are lists of numbers, as in a groups file, whose keys may be any names."""
    lists = list(content.values())
    return all(isinstance(ranks, list) and all(isinstance(rank, int) for rank in ranks) for ranks in lists)


def mixed_up(actual: Role, expected: Role, place: str) -> MachineError:
    """The error for a file, or a dict, that was passed in the place of another."""
    if place.startswith("<"):
        remedy = f"pass it as {actual}=, not {expected}="
        return MachineError(f"this looks like a {actual} description", place=place, remedy=remedy)
    remedy = f"pass it with --{actual}, not --{expected}"
    return MachineError(f"this looks like a {actual} file", place=place, remedy=remedy)


def role_of(content: Mapping[str, Any]) -> Role | None:
    """The kind of file that the content looks like."""
    if not content.keys().isdisjoint(NETWORK_1_SIGNS | LOGGOPS_SIGNS | {"graph"}):
        return Role.NETWORK
    # Memory before system: local-mem-bw is a key of both.
    for role in (Role.NETWORK, Role.MEMORY, Role.SYSTEM):
        shared = content.keys() & _SIGNS[role]
        if shared and not (role is Role.MEMORY and shared <= _SIGNS[Role.SYSTEM]):
            return role
    if content and all(name.isdecimal() for name in content):
        return Role.GROUPS
    return None


def is_graph(content: Mapping[str, Any]) -> bool:
    """Whether a network file describes a graph, not dimensions."""
    return "topology" not in content and not content.keys().isdisjoint(GRAPH_SIGNS)


def is_hierarchy(content: Mapping[str, Any]) -> bool:
    """Whether this is a network file of 1.0."""
    return not content.keys().isdisjoint(NETWORK_1_SIGNS)


def is_version_1(content: Mapping[str, Any], *, beside_version_1: bool) -> bool:
    """Whether a dict or JSON object is a system of 1.0; `beside_version_1`: so is the network."""
    if "profile" in content:
        return bool(content["profile"] == Profile.ASTRA_1)
    texts = [isinstance(content.get(f"{name}-implementation"), str) for name in COLLECTIVES]
    return beside_version_1 and any(texts)


def is_loggops(content: Mapping[str, Any]) -> bool:
    """Whether a network file gives the constants of LogGOPS."""
    return not content.keys().isdisjoint(LOGGOPS_SIGNS)


NS3_FIRST = re.compile(r"\s*\d+\s+\d+\s+\d+\s*$")
GARNET_FIRST = re.compile(r"^\s*num-npus\s*:", re.MULTILINE)
HTSIM_FIRST = re.compile(r"nodes\s+\d+\s*$", re.IGNORECASE)
NS3, HTSIM, GARNET, GRAPHML, NODE_LINK = "ns-3", "htsim", "garnet", "graphml", "node-link"
FORMATS = (NS3, HTSIM, GARNET, GRAPHML, NODE_LINK)


class Imported(Struct):
    """Devices and links as a graph file would list them, and what else such a file would have."""

    content: dict[str, Any]
    link_lines: list[int] = field(default_factory=list)  # if known
    dimensions: tuple[int, ...] = ()
    keys: dict[str, Any] = field(default_factory=dict)  # besides devices and links
    notices: tuple[tuple[str, str], ...] = ()  # (key, what is to be known of it)


def format_of(text: str) -> str:
    """Which tool's file a text is; empty: none of those."""
    if text.lstrip().startswith("<"):
        return GRAPHML if "<graphml" in text[:2000] else ""
    if GARNET_FIRST.search(text):
        return GARNET
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    first = next((line for line in lines if line), "")
    return NS3 if NS3_FIRST.match(first) else HTSIM if HTSIM_FIRST.match(first) else ""


def is_node_link(content: Any) -> bool:
    """Whether a JSON object is a graph in node-link form."""
    return isinstance(content, dict) and "nodes" in content and ("links" in content or "edges" in content)
