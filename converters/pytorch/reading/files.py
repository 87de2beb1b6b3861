"""Kind and rank of a file without reading all of it, and files that contain both recordings.

An older linker merged both ("ET+"): it gave nodes of the execution trace the times of their operators, and
added work of the device as further nodes, each with the launching node as its parent. Such files are read as
the two original recordings.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from msgspec import Struct

from converters.pytorch.columns import ABSENT, DeviceTrace, HostNodeKind, HostTrace
from converters.pytorch.reading.execution_trace import AnyNodes, kind_of_node, read_host
from converters.pytorch.reading.execution_trace_nodes import ExecutionTraceNode, FlatNode, NodeLayout
from converters.pytorch.reading.json_chunks import BLOCK_BYTES, JsonBatch, JsonText, Progress, json_chunks
from converters.pytorch.reading.kineto_events import EventArguments, KinetoEvent
from converters.pytorch.reading.kineto_timeline import DeviceReader
from converters.pytorch.reading.values import Decoder, ValueColumn, decoded, rank_of_name, whole_number
from et_sim.basics.errors import TraceError

_NO_EVENT = KinetoEvent(phase="node", category="of the host, without times")
_ROOTS = (HostNodeKind.PROCESS, HostNodeKind.THREAD)
_USER_SCOPE = 7


def read_linked(
    path: Path, *, progress: Progress | None = None, block_bytes: int = BLOCK_BYTES
) -> tuple[HostTrace, DeviceTrace]:
    """Read a linked file, plain or compressed with gzip."""
    device = DeviceReader(path)
    node_ids = ValueColumn()

    def watch(nodes: AnyNodes, batch: JsonBatch) -> None:
        kept = device.events([_event(node) for node in nodes], batch)
        node_ids.add([_owner(nodes[row]) for row in kept])

    host = read_host(path, progress=progress, block_bytes=block_bytes, watcher=watch)
    return host, device.finish(node_ids.finish())


def _is_work(node: ExecutionTraceNode | FlatNode) -> bool:
    """Return whether a node is work of the device."""
    return bool(node.category) and node.category != "cpu_op"


def _owner(node: ExecutionTraceNode | FlatNode) -> int:
    """Return the node of the execution trace that an event belongs to."""
    return node.caller if _is_work(node) else node.node_id


def _event(node: ExecutionTraceNode | FlatNode) -> KinetoEvent:
    """Return the event of the timeline that the linker found for a node."""
    if node.ts is None or kind_of_node(node.name) in _ROOTS:
        return _NO_EVENT
    length = node.inclusive_dur if node.dur is None else node.dur
    thread = node.attribute("tid", 0)
    if _is_work(node):
        category, arguments = str(node.category), node.args or EventArguments(stream=node.stream)
    else:
        category = "user_annotation" if node.attribute("scope", 0) == _USER_SCOPE else "cpu_op"
        arguments = EventArguments(
            record_function=node.attribute("rf_id", ABSENT), sequence=node.attribute("seq_id", ABSENT)
        )
    return KinetoEvent(
        "X", category, node.name, pid=node.pid, tid=thread, ts=node.ts, dur=length, args=arguments
    )


HOST, DEVICE, LINKED, OTHER = "host", "device", "linked", "other"
_TAIL_BYTES = 1 << 18
_RANK = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]*?"rank"\s*:\s*(\d+)')


class Identity(Struct, frozen=True):
    """The kind of a file: "host" (an execution trace), "device" (a Kineto timeline), "linked" (both in one,
    from an older linker) or "other", for which `why` describes the content.
    """

    kind: str
    rank: int = ABSENT
    process: int = ABSENT  # both recordings of a rank name the same process
    why: str = ""


def identify(path: Path) -> Identity:
    """Identify a file by its beginning, and by its end if the rank may be there.

    A rank in the content has priority over one in the file's name.
    """
    try:
        members: dict[str, Any] = {}
        for piece in json_chunks(path, ("traceEvents", "nodes")):
            if not isinstance(piece, JsonBatch):
                members[piece.key] = decoded(piece, path)
            elif piece.key == "nodes":
                layouts = Decoder(NodeLayout, path)(piece)
                kind = LINKED if any(layout.ts for layout in layouts) else HOST
                if "schema" not in members and not any(layout.attrs or layout.shapes for layout in layouts):
                    return Identity(OTHER, why='its "nodes" are not those of an execution trace')
                return Identity(kind, rank_of_name(path), whole_number(members.get("pid")))
            else:
                return _device_identity(path, members, Decoder(KinetoEvent, path)(piece))
        return Identity(OTHER, why='holds neither "nodes" nor "traceEvents"')
    except TraceError as error:
        return Identity(OTHER, why=error.cause)


def _device_identity(path: Path, members: dict[str, Any], events: list[KinetoEvent]) -> Identity:
    if not any(event.phase for event in events) and "schemaVersion" not in members:
        why = "is a list of something else than events" if events else "holds no events"
        return Identity(OTHER, why=why)
    distributed = members.get("distributedInfo")
    rank = whole_number(distributed.get("rank")) if isinstance(distributed, dict) else ABSENT
    if rank == ABSENT and distributed is None:
        with JsonText(path) as blocks:  # distributedInfo may come after the events
            match = _RANK.search(blocks.last(_TAIL_BYTES))
        rank = int(match.group(1)) if match else ABSENT
    on_host = (
        event.pid for event in events if event.phase == "X" and event.category in ("cpu_op", "Operator")
    )
    process = whole_number(next(on_host, ABSENT))
    return Identity(DEVICE, rank_of_name(path) if rank == ABSENT else rank, process)
