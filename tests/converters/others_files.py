"""Trace files of other tools, from `tests/trace/data`, and the parts that a conversion must preserve."""

from __future__ import annotations

import gzip
from pathlib import Path

from converters.records import frame, parse, split

REPOSITORY = Path(__file__).parents[2]
TRACES = REPOSITORY / "tests" / "trace" / "data"
PATHS = sorted(TRACES.glob("*.et*"))
PYTORCH = TRACES / "pytorch_linear_1gpu.0.et.gz"


def content_of(path: Path) -> bytes:
    """Return the unpacked file."""
    raw = path.read_bytes()
    return gzip.decompress(raw) if path.suffix == ".gz" else raw


def without_dangling(content: bytes) -> bytes:
    """Return the file without dependencies on missing nodes, by a slow method."""
    header, *nodes = parse(split(content), "a file")
    ids = {node.id for node in nodes}
    for node in nodes:
        for held in (node.ctrl_deps, node.data_deps):
            held[:] = [node_id for node_id in held if node_id in ids]
    return frame([header, *nodes])
