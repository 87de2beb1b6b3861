"""Network files of other tools: how they are told apart, and what is made of one, in the words of ours.

Not here: how such files are read (`other_topologies`).
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct, field

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
