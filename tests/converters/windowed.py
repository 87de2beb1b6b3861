"""A recording converted as a whole and in windows, in a form in which the two can be compared."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import proto

from converters.pytorch.converting import Job, convert
from converters.pytorch.windows import Sizes
from et_sim.trace.schema import messages


@dataclass(frozen=True)
class Converted:
    """What came out, whatever the numbers of the nodes."""

    nodes: Counter[bytes]
    links: Counter[tuple[str, tuple[bytes, int], tuple[bytes, int]]]  # kind, from, to
    runs_forward: bool  # whether all dependencies lead to higher numbers
    report: dict[str, Any]


def converted_by(sizes: Sizes, folder: Path, **files: Path | None) -> Converted:
    """Convert a rank, and read what was written by the public library."""
    done = convert(Job(folder / "rank.0.et", **files), None, sizes)
    content = done.temporary.read_bytes()
    done.temporary.unlink()
    nodes: Counter[bytes] = Counter()
    known: dict[int, tuple[bytes, int]] = {}  # by id: what the node is, and which of those that are the same
    before: list[tuple[int, str, list[int]]] = []
    for node in _nodes(content):
        number = node.id
        before += [(number, "control", list(node.ctrl_deps)), (number, "data", list(node.data_deps))]
        for field in ("id", "ctrl_deps", "data_deps"):
            node.ClearField(field)
        bare = node.SerializeToString(deterministic=True)
        known[number] = bare, nodes[bare]
        nodes[bare] += 1
    links = Counter((kind, known[one], known[after]) for after, kind, several in before for one in several)
    forward = all(one < after for after, _, several in before for one in several)
    return Converted(nodes, links, forward, done.report)


def _nodes(content: bytes) -> Iterator[Any]:
    source = io.BytesIO(content)
    proto.parse_length_prefixed(messages().GlobalMetadata, source)
    while (node := proto.parse_length_prefixed(messages().Node, source)) is not None:
        yield node
