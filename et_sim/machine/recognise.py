"""Recognition of configuration files, ours and other tools', to report mix-ups of files."""

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


class MachineFile(StrEnum):
    """The four files that describe a machine."""

    SYSTEM = "system"
    NETWORK = "network"
    MEMORY = "memory"
    GROUPS = "groups"


_SIGNS: dict[MachineFile, frozenset[str]] = {
    MachineFile.SYSTEM: frozenset(key.name for key in SYSTEM_KEYS),
    MachineFile.NETWORK: frozenset(key.name for key in NETWORK_KEYS),
    MachineFile.MEMORY: frozenset(key.name for key in MEMORY_KEYS),
}
# Keys that only a network file of ASTRA-sim 1.0 has.
NETWORK_1_SIGNS = frozenset({"topology-name", "topologies-per-dim", "dimensions-count"})
# Keys that only a network file with a graph has.
GRAPH_SIGNS = frozenset({"graph", "npus", "switches", "nics", "devices", "nodes"})
LOGGOPS_SIGNS = frozenset({"loggops"})  # keys of a network file with the constants of LogGOPS


def refuse_other_role(content: Mapping[str, Any], expected: MachineFile, place: str) -> None:
    """Refuse content that is plainly another file than the expected one."""
    if expected is MachineFile.NETWORK and not content.keys().isdisjoint(
        NETWORK_1_SIGNS | GRAPH_SIGNS | LOGGOPS_SIGNS
    ):
        return
    if expected is MachineFile.GROUPS and _is_of_ranks(content):
        return
    if expected is not MachineFile.GROUPS and not content.keys().isdisjoint(_SIGNS[expected]):
        return
    actual = role_of(content)
    if actual is not None and actual is not expected:
        raise mixed_up(actual, expected, place)


def _is_of_ranks(content: Mapping[str, Any]) -> bool:
    """Check whether all values are lists of numbers, as in a groups file, whose keys may be any names."""
    lists = list(content.values())
    return all(isinstance(ranks, list) and all(isinstance(rank, int) for rank in ranks) for ranks in lists)


def mixed_up(actual: MachineFile, expected: MachineFile, place: str) -> MachineError:
    """Return the error for a file or dict that was passed in place of another."""
    if place.startswith("<"):
        remedy = f"pass it as {actual}=, not {expected}="
        return MachineError(f"this looks like a {actual} description", place=place, remedy=remedy)
    remedy = f"pass it with --{actual}, not --{expected}"
    return MachineError(f"this looks like a {actual} file", place=place, remedy=remedy)


def role_of(content: Mapping[str, Any]) -> MachineFile | None:
    """Return the kind of file that the content looks like, or None."""
    if not content.keys().isdisjoint(NETWORK_1_SIGNS | LOGGOPS_SIGNS | {"graph"}):
        return MachineFile.NETWORK
    # Memory before system: local-mem-bw is a key of both.
    for role in (MachineFile.NETWORK, MachineFile.MEMORY, MachineFile.SYSTEM):
        shared = content.keys() & _SIGNS[role]
        if shared and not (role is MachineFile.MEMORY and shared <= _SIGNS[MachineFile.SYSTEM]):
            return role
    if content and all(name.isdecimal() for name in content):
        return MachineFile.GROUPS
    return None


def is_graph(content: Mapping[str, Any]) -> bool:
    """Check whether a network file describes a graph, not dimensions."""
    return "topology" not in content and not content.keys().isdisjoint(GRAPH_SIGNS)


def is_hierarchy(content: Mapping[str, Any]) -> bool:
    """Check whether the content is a network file of 1.0."""
    return not content.keys().isdisjoint(NETWORK_1_SIGNS)


def is_version_1(content: Mapping[str, Any], *, beside_version_1: bool) -> bool:
    """Check whether an object is a system of 1.0; `beside_version_1`: the network is of 1.0."""
    if "profile" in content:
        return bool(content["profile"] == Profile.ASTRA_1)
    texts = [isinstance(content.get(f"{name}-implementation"), str) for name in COLLECTIVES]
    return beside_version_1 and any(texts)


def is_loggops(content: Mapping[str, Any]) -> bool:
    """Check whether a network file gives the constants of LogGOPS."""
    return not content.keys().isdisjoint(LOGGOPS_SIGNS)


NS3_FIRST = re.compile(r"\s*\d+\s+\d+\s+\d+\s*$")
NS3_KEY = re.compile(r"^(CC_MODE|PACKET_PAYLOAD_SIZE|KMAX_MAP)\s", re.MULTILINE)
GARNET_FIRST = re.compile(r"^\s*num-npus\s*:", re.MULTILINE)
NCCL_FIRST = re.compile(r"<system\b")
HTSIM_FIRST = re.compile(r"nodes\s+\d+\s*$", re.IGNORECASE)
NS3, HTSIM, GARNET, GRAPHML, NODE_LINK = "ns-3", "htsim", "garnet", "graphml", "node-link"
NCCL, INFRAGRAPH = "nccl", "infragraph"
FORMATS = (NS3, HTSIM, GARNET, GRAPHML, NODE_LINK, NCCL, INFRAGRAPH)


class Imported(Struct):
    """The devices and links of an imported file, as a graph file lists them, and its other keys."""

    content: dict[str, Any]
    link_lines: list[int] = field(default_factory=list)  # if known
    dimensions: tuple[int, ...] = ()
    keys: dict[str, Any] = field(default_factory=dict)  # keys besides devices and links
    notices: tuple[tuple[str, str], ...] = ()  # (key, remark)


def format_of(text: str) -> str:
    """Return the format of a text, or an empty string if it is of none of these tools."""
    if text.lstrip().startswith("<"):
        return GRAPHML if "<graphml" in text[:2000] else NCCL if NCCL_FIRST.search(text[:2000]) else ""
    if GARNET_FIRST.search(text):
        return GARNET
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    first = next((line for line in lines if line), "")
    return NS3 if NS3_FIRST.match(first) else HTSIM if HTSIM_FIRST.match(first) else ""


def is_infragraph(content: Any) -> bool:
    """Check whether the content is an infrastructure of InfraGraph, by itself or below its key."""
    inner = content.get("infrastructure", content) if isinstance(content, dict) else None
    return isinstance(inner, dict) and isinstance(inner.get("devices"), list) and _has_components(inner)


def _has_components(content: Mapping[str, Any]) -> bool:
    return any(isinstance(device, dict) and "components" in device for device in content["devices"])


def is_node_link(content: Any) -> bool:
    """Check whether a JSON object is a graph in node-link form."""
    return isinstance(content, dict) and "nodes" in content and ("links" in content or "edges" in content)
