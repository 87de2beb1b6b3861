"""The nodes of a rank in the order of issue, with their dependencies and their places in the program.

A stream works in order. The waits of a stream, or the host, are kept until the next node is issued there.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any

from recorder.recorded import RankRecording, RecordedGroup, RecordedKind, RecordedNode, Remark, StepPhase

_OURS = str(Path(__file__).resolve().parent)
_FOREIGN = ("/torch/", "/transformers/", "/accelerate/", "<frozen", "/contextlib.py", "/runpy.py")


def user_place() -> str:
    """Return the place of a call, such as `train.py:17`; of a library if the program has no frame."""
    frame: FrameType | None = sys._getframe(1)
    nearest = ""
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((_OURS, "<")):
            place = f"{Path(name).name}:{frame.f_lineno}"
            if not any(one in name for one in _FOREIGN):
                return place
            nearest = nearest or place
        frame = frame.f_back
    return nearest


COMPUTE = 0  # the stream that is current at the beginning
HOST = -1
NODES_BETWEEN_COLLECTIONS = 10_000
FIGURES = RecordedNode.__struct_fields__[RecordedNode.__struct_fields__.index("shape") :]


class Tape:
    """The recording of one rank."""

    def __init__(self, rank: int, world: int, *, host_ns: int = 0) -> None:
        self.recorded = RankRecording(rank, world)
        self.nodes = self.recorded.nodes
        self.host_ns = host_ns
        self.current = COMPUTE
        self.phase = StepPhase.SETUP
        self.step = -1
        self.module = ""
        self.region = -1  # call of a compiled region to which issued nodes belong
        self.region_calls = 0
        self._last: dict[int, int] = {}
        self._pending: dict[int, set[int]] = {}
        self._streams = COMPUTE + 1
        self._host: frozenset[int] = frozenset()  # nodes that the host has waited for
        self._host_waits_of: dict[
            int, frozenset[int]
        ] = {}  # the part of it that each stream already waits for
        self._thread = threading.get_ident()
        self._remarks: dict[tuple[str, str, str], Remark] = {}

    def new_stream(self) -> int:
        """Return the number of one more stream."""
        self._streams += 1
        return self._streams - 1

    def add(self, work: RecordedKind, operator: str, stream: int, **figures: Any) -> RecordedNode:
        """Issue a node on a stream."""
        if threading.get_ident() != self._thread:
            self.remark("threads", "work of another thread: its place may be another in the next recording")
        after = self._pending.pop(stream, set())
        if (last := self._last.get(stream)) is not None:
            after.add(last)
        if self.host_ns and work is not RecordedKind.HOST:
            self.add(RecordedKind.HOST, f"launch of {operator}", HOST, operations=self.host_ns)
            after.add(len(self.nodes) - 1)
        if self._host_waits_of.get(stream, frozenset()) is not self._host:
            after |= self._host
            self._host_waits_of[stream] = self._host
        node = RecordedNode(
            work, operator, self.module, self.phase, self.step, stream, self._bare(after, last), **figures
        )
        self._last[stream] = len(self.nodes)
        self.nodes.append(node)
        if len(self.nodes) % NODES_BETWEEN_COLLECTIONS == 0:
            gc.collect()
        return node

    def repeat(self, first: int, end: int) -> None:
        """Issue the nodes from `first` until before `end` again: a graph, which the host launches once."""
        captured = [at for at in range(first, end) if self.nodes[at].work is not RecordedKind.HOST]
        streams = {self.nodes[at].stream for at in captured}
        before, module, host_ns = self.last(self.current), self.module, self.host_ns
        if host_ns:
            self.add(RecordedKind.HOST, "launch of a graph", HOST, operations=host_ns)
            before |= {len(self.nodes) - 1}
        self.host_ns = 0
        for stream in streams:
            self.wait(stream, before)
        self.remark("changed", "a replay of a graph is recorded as its kernels")
        again: dict[int, int] = {}
        for at in captured:
            node = self.nodes[at]
            self.module = node.module
            self.wait(node.stream, (again[earlier] for earlier in node.after if earlier in again))
            again[at] = len(self.nodes)
            self.add(node.work, node.operator, node.stream, **{name: getattr(node, name) for name in FIGURES})
        self.module, self.host_ns = module, host_ns
        self.join(streams)

    def join(self, streams: Iterable[int]) -> None:
        """Make the current stream wait for others."""
        for stream in streams:
            self.wait(self.current, self.last(stream))

    def _bare(self, after: set[int], last: int | None) -> list[int]:
        """Remove dependencies implied by earlier nodes of the same streams, or by their dependencies."""
        if len(after) > 1:
            newest: dict[int, int] = {}
            for node in sorted(after):
                newest[self.nodes[node].stream] = node
            after = set(newest.values())
            if last is not None and len(after) > 1:
                after -= set(self.nodes[last].after)
        return sorted(after)

    def last_issued(self, stream: int) -> int:
        """Return the last node of a stream."""
        return self._last[stream]

    def last(self, stream: int) -> frozenset[int]:
        """Return the nodes after which all work issued on a stream is done."""
        waits = self._pending.get(stream, set())
        last = self._last.get(stream)
        return frozenset(waits if last is None else waits | {last})

    def wait(self, stream: int, nodes: Iterable[int]) -> None:
        """Make the next node of a stream wait for these nodes."""
        new = {node for node in nodes if self.nodes[node].stream != stream}
        if new:
            self._pending.setdefault(stream, set()).update(new)

    def host_waits(self, nodes: Iterable[int]) -> None:
        """Make all later nodes wait for these nodes."""
        latest: dict[int, int] = {}
        for node in sorted(self._host | frozenset(nodes)):
            latest[self.nodes[node].stream] = node
        self._host = frozenset(latest.values())
        self.wait(HOST, self._host)

    def host_waits_for_all(self) -> None:
        """Wait like a synchronisation of the device."""
        self.host_waits(node for stream in list(self._last) for node in self.last(stream))

    def remark(self, kind: str, text: str, place: str = "") -> None:
        """Add a remark once, and count its repetitions."""
        result = self._remarks.get((kind, text, place))
        if result is None:
            result = self._remarks[kind, text, place] = Remark(kind, text, place, 0)
            self.recorded.remarks.append(result)
        result.count += 1

    def add_group(self, members: list[int], name: str) -> int:
        """Return the index of one more process group."""
        self.recorded.groups.append(RecordedGroup(members, name))
        return len(self.recorded.groups) - 1
