"""A file in which an older linker merged both recordings ("ET+"): read as the two that it was made of.

The linker gave nodes of the execution trace the times of their operators, and put work of the device among
them as further nodes, each with the launching node as its parent.

Not here: linking (`converters.pytorch`); reading nodes and events (`host`, `device`).
"""

from __future__ import annotations

from pathlib import Path

from converters.pytorch.columns import ABSENT, DeviceTrace, HostNodeKind, HostTrace
from converters.pytorch.reading.device import DeviceReader
from converters.pytorch.reading.device_records import Arguments, Event
from converters.pytorch.reading.host import AnyNodes, kind_of_node, read_host
from converters.pytorch.reading.host_records import FlatNode, Node
from converters.pytorch.reading.json_chunks import BLOCK_BYTES, Batch, Progress
from converters.pytorch.reading.values import Column

_NO_EVENT = Event(phase="node", category="of the host, without times")
_ROOTS = (HostNodeKind.PROCESS, HostNodeKind.THREAD)
_USER_SCOPE = 7


def read_linked(
    path: Path, *, progress: Progress | None = None, block_bytes: int = BLOCK_BYTES
) -> tuple[HostTrace, DeviceTrace]:
    """Read a linked file, plain or compressed with gzip."""
    device = DeviceReader(path)
    node_ids = Column()

    def watch(nodes: AnyNodes, batch: Batch) -> None:
        kept = device.events([_event(node) for node in nodes], batch)
        node_ids.add([_owner(nodes[row]) for row in kept])

    host = read_host(path, progress=progress, block_bytes=block_bytes, watcher=watch)
    return host, device.finish(node_ids.finish())


def _is_work(node: Node | FlatNode) -> bool:
    """Whether a node is work of the device."""
    return bool(node.category) and node.category != "cpu_op"


def _owner(node: Node | FlatNode) -> int:
    """The node of the execution trace that an event belongs to."""
    return node.caller if _is_work(node) else node.node_id


def _event(node: Node | FlatNode) -> Event:
    """The event of the timeline that the linker found for a node."""
    if node.ts is None or kind_of_node(node.name) in _ROOTS:
        return _NO_EVENT
    length = node.inclusive_dur if node.dur is None else node.dur
    thread = node.attribute("tid", 0)
    if _is_work(node):
        category, arguments = str(node.category), node.args or Arguments(stream=node.stream)
    else:
        category = "user_annotation" if node.attribute("scope", 0) == _USER_SCOPE else "cpu_op"
        arguments = Arguments(
            record_function=node.attribute("rf_id", ABSENT), sequence=node.attribute("seq_id", ABSENT)
        )
    return Event("X", category, node.name, pid=node.pid, tid=thread, ts=node.ts, dur=length, args=arguments)
