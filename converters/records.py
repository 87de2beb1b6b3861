"""Trace files as records: each node as its protobuf message, with all fields of the file.

The columns of the simulator leave out what a simulation does not need. Repair, display and JSON must keep
everything, so they use the records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from msgspec import Struct, field

from et_sim.basics.errors import TraceError
from et_sim.basics.protobuf_fields import varint
from et_sim.trace.columns import ATTRIBUTES
from et_sim.trace.schema import messages

# The members of the oneof that other tools expect for the attributes with a meaning.
EXPECTED_MEMBER = tuple((attribute.name, attribute.member) for attribute in ATTRIBUTES)


class Dropped(Struct):
    """Dependencies that were left out because their target is not in the file."""

    control: int = 0
    data: int = 0
    missing: Counter[int] = field(default_factory=Counter)
    first: str = ""

    def __len__(self) -> int:
        return self.control + self.data


def frame(records: Iterable[Any]) -> bytes:
    """Return the file that holds these messages."""
    return b"".join(_framed(record.SerializeToString(deterministic=True)) for record in records)


def split(content: bytes) -> Iterator[bytes]:
    """Yield the records of a file without their lengths; the first is the GlobalMetadata."""
    position = 0
    while position < len(content):
        size = shift = 0
        while True:
            group = content[position]
            position += 1
            size |= (group & 127) << shift
            shift += 7
            if group < 128:
                break
        yield content[position : position + size]
        position += size


def parse(records: Iterator[bytes], source: str, *, only_nodes: bool = False) -> Iterator[Any]:
    """Yield the messages of a file: the GlobalMetadata, unless `only_nodes` is set, then the nodes."""
    schema = messages()
    header = next(records)
    if not only_nodes:
        yield _message(schema.GlobalMetadata, header, source)
    for record in records:
        yield _message(schema.Node, record, source)


def without_dangling(content: bytes, known: Collection[int], source: str) -> tuple[bytes, Dropped]:
    """Return the file without dependencies on ids outside `known`; other records keep their bytes."""
    dropped = Dropped()
    records = split(content)
    kept = [_framed(next(records))]
    for record in records:
        node = _message(messages().Node, record, source)
        before = len(dropped)
        dropped.control += _drop(node, "control", node.ctrl_deps, known, dropped)
        dropped.data += _drop(node, "data", node.data_deps, known, dropped)
        changed = len(dropped) > before
        kept.append(_framed(node.SerializeToString(deterministic=True) if changed else record))
    return b"".join(kept), dropped


def frame_bytes(records: Iterable[bytes]) -> bytes:
    """Return the file that holds these records; the first is the GlobalMetadata."""
    return b"".join(map(_framed, records))


def _drop(node: Any, kind: str, dependencies: Any, known: Collection[int], dropped: Dropped) -> int:
    missing = [node_id for node_id in dependencies if node_id not in known]
    if missing:
        dropped.first = dropped.first or (
            f'node {node.id} "{node.name}" has a {kind} dependency on node {missing[0]},'
            " which is not in the file"
        )
        dropped.missing.update(missing)
        dependencies[:] = [node_id for node_id in dependencies if node_id in known]
    return len(missing)


def _message(kind: Any, record: bytes, source: str) -> Any:
    from google.protobuf.message import DecodeError

    try:
        return kind.FromString(record)
    except DecodeError as error:
        raise TraceError(
            f"a record does not fit the trace schema: {error}",
            place=source,
            remedy="the file is damaged; fetch or write it again",
        ) from None


def _framed(record: bytes) -> bytes:
    return varint(len(record)) + record
