"""Events of a Kineto timeline with the members that are read, kinds of categories, and details of some
events.

Other keys are skipped while decoding.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from converters.pytorch.columns import (
    ABSENT,
    COLLECTIVE_TEXTS,
    CopyTransfers,
    EventKind,
    MemoryChanges,
    RecordedCollectives,
    WaitColumns,
)
from converters.pytorch.reading.values import (
    NO_TEXT,
    Memo,
    Number,
    Numbering,
    ValueRows,
    stream_number,
    values_matter,
)

_CATEGORIES = {
    EventKind.OPERATOR: ("cpu_op", "operator"),
    EventKind.ANNOTATION: ("user_annotation",),
    EventKind.LAUNCH: (
        "cuda_runtime",
        "cuda_driver",
        "runtime",
        "mtia_runtime",
        "xpu_runtime",
        "xpu_driver",
        "glow_runtime",
        "privateuse1_runtime",
        "privateuse1_driver",
    ),
    EventKind.KERNEL: ("kernel", "concurrent_kernel"),
    EventKind.MEMCPY: ("gpu_memcpy", "memcpy"),
    EventKind.MEMSET: ("gpu_memset", "memset"),
    EventKind.SYNC: ("cuda_sync", "xpu_sync"),
    EventKind.DEVICE_ANNOTATION: ("gpu_user_annotation",),
    EventKind.OVERHEAD: ("overhead",),
    EventKind.ACCELERATOR: ("mtia_ccp_events", "mtia_workloadd", "hpu_op"),
}
KINDS = {name: kind for kind, names in _CATEGORIES.items() for name in names}


class EventArguments(
    msgspec.Struct,
    gc=False,
    rename={
        "external_id": "External id",
        "external_id_of_old": "external id",
        "record_function": "Record function id",
        "sequence": "Sequence number",
        "dims": "Input Dims",
        "types": "Input type",
        "values": "Concrete Inputs",
        "size_bytes": "bytes",
        "sync_kind": "cuda_sync_kind",
        "waited_stream": "wait_on_stream",
        "waited_event": "wait_on_cuda_event_id",
        "waited_record": "wait_on_cuda_event_record_corr_id",
        "operation": "Collective name",
        "in_elements": "In msg nelems",
        "out_elements": "Out msg nelems",
        "group_size": "Group size",
        "group_name": "Process Group Name",
        "group_description": "Process Group Description",
        "group_ranks": "Process Group Ranks",
        "rank_start": "Global rank start",
        "rank_stride": "Global rank stride",
        "in_splits": "In split size",
        "out_splits": "Out split size",
        "source": "Src Rank",
        "destination": "Dst Rank",
        "number": "Seq",
        "device_type": "Device Type",
        "device_number": "Device Id",
        "address": "Addr",
        "memory_bytes": "Bytes",
        "allocated": "Total Allocated",
        "reserved": "Total Reserved",
    },
):
    """The `args` of an event."""

    external_id: Number = ABSENT
    external_id_of_old: Number = ABSENT
    record_function: Number = ABSENT
    correlation: Number = ABSENT
    stream: Number = None
    device: Number = None
    sequence: Number = ABSENT
    dims: msgspec.Raw = NO_TEXT
    types: msgspec.Raw = NO_TEXT
    values: msgspec.Raw = NO_TEXT
    size_bytes: Number = None
    size: Number = None  # the same, in calls of ROCm
    sync_kind: str | None = None
    waited_stream: Number = None
    waited_event: Number = ABSENT
    waited_record: Number = ABSENT
    operation: str | None = None
    dtype: str = ""
    in_elements: Number = ABSENT
    out_elements: Number = ABSENT
    group_size: Number = ABSENT
    group_name: str | int = ""
    group_description: str = ""
    group_ranks: msgspec.Raw = NO_TEXT
    rank_start: Number = ABSENT
    rank_stride: Number = ABSENT
    in_splits: msgspec.Raw = NO_TEXT
    out_splits: msgspec.Raw = NO_TEXT
    source: Number = ABSENT
    destination: Number = ABSENT
    number: Number = ABSENT
    device_type: Number = ABSENT
    device_number: Number = ABSENT
    address: Number = ABSENT
    memory_bytes: Number = 0
    allocated: Number = ABSENT
    reserved: Number = ABSENT

    @property
    def changes_device(self) -> bool:
        """Return whether memory of a device is allocated or released, as opposed to that of the host."""
        return type(self.device_type) is int and self.device_type > 0 and self.address != ABSENT


class KinetoEvent(msgspec.Struct, gc=False, rename={"phase": "ph", "category": "cat", "flow_id": "id"}):
    """An element of `traceEvents`."""

    phase: str = ""
    category: str = ""
    name: str = ""
    pid: int | float | str = -1
    tid: int | float | str = -1
    ts: int | float | str | None = None
    dur: int | float | str | None = None
    flow_id: Number = ABSENT
    args: EventArguments | None = None


class EventTimes(msgspec.Struct, gc=False):
    """The times of an event as written in the file."""

    ts: msgspec.Raw = NO_TEXT
    dur: msgspec.Raw = NO_TEXT


NO_ARGUMENTS = EventArguments()


_SHAPES = list[list[int | list[int | list[Any]]]]  # of tensors, and of lists of them
_MOVES = frozenset((EventKind.MEMCPY, EventKind.MEMSET, EventKind.LAUNCH, EventKind.ACCELERATOR))


class Details:
    """A collector of details, with the row of the event beside each."""

    def __init__(self) -> None:
        self.texts: Numbering[str | bytes] = Numbering()
        self._keeps_values: Memo[str, bool] = Memo(values_matter)
        self._inputs: Memo[tuple[bytes, bytes, bytes], int] = Memo(self._inputs_text)
        self.unreadable_inputs = 0  # distinct recorded inputs that are no lists of the right kind
        self._waits = ValueRows("row", "kind", "stream", "event", "record_correlation")
        self._transfers = ValueRows("row", "size_bytes")
        self._collectives = ValueRows(*RecordedCollectives.__struct_fields__)
        self._memory = ValueRows(*MemoryChanges.__struct_fields__)

    def add(
        self, first_row: int, events: list[KinetoEvent], kinds: list[int], arguments: list[EventArguments]
    ) -> None:
        """Add the details of consecutive rows."""
        for row, argument in enumerate(arguments):
            if argument.operation is not None:
                self._collective(first_row + row, argument)
            if argument.sync_kind is not None or argument.waited_stream is not None:
                self._wait(first_row + row, argument, events[row].name)
            if (argument.size_bytes is not None or argument.size is not None) and kinds[row] in _MOVES:
                self._transfers.append(
                    first_row + row, argument.size if argument.size_bytes is None else argument.size_bytes
                )

    def inputs_of(self, events: list[KinetoEvent], arguments: list[EventArguments]) -> list[int]:
        """Return the text of each event's recorded inputs."""
        inputs, keeps = self._inputs, self._keeps_values
        return [
            inputs[
                bytes(argument.dims),
                bytes(argument.types),
                bytes(argument.values) if keeps[event.name] else b"",
            ]
            if argument.types or argument.dims
            else ABSENT
            for event, argument in zip(events, arguments, strict=True)
        ]

    def waits(self) -> WaitColumns:
        return WaitColumns(**self._waits.finish())

    def transfers(self) -> CopyTransfers:
        columns = self._transfers.finish()
        return CopyTransfers(columns["row"], columns["size_bytes"].astype(np.int64))

    def collectives(self) -> RecordedCollectives:
        return RecordedCollectives(**self._collectives.finish())

    def add_memory(self, ts_ns: int, lane: int, argument: EventArguments) -> None:
        """Add an allocation or a release."""
        self._memory.append(
            ts_ns,
            lane,
            argument.device_number,
            argument.address,
            argument.memory_bytes,
            argument.allocated,
            argument.reserved,
        )

    def memory(self) -> MemoryChanges:
        columns = self._memory.finish()
        return MemoryChanges(**{**columns, "ts_ns": columns["ts_ns"].astype(np.int64)})

    def _inputs_text(self, recorded: tuple[bytes, bytes, bytes]) -> int:
        dims, types, values = (text or b"[]" for text in recorded)
        try:
            for text, kind in ((dims, _SHAPES), (types, list[str]), (values, list[Any])):
                msgspec.json.decode(text, type=kind)
        except msgspec.DecodeError:
            self.unreadable_inputs += 1
            return ABSENT
        more = b', "values": ' + values if recorded[2] else b""
        return self.texts[b'{"dims": ' + dims + b', "types": ' + types + more + b"}"]

    def _wait(self, row: int, argument: EventArguments, name: str) -> None:
        kind = name if argument.sync_kind is None else argument.sync_kind
        stream = stream_number(argument.waited_stream)
        self._waits.append(row, self.texts[kind], stream, argument.waited_event, argument.waited_record)

    def _collective(self, row: int, argument: EventArguments) -> None:
        given = {name: getattr(argument, name) for name in self._collectives.columns if name != "row"}
        texts = {name: self.texts[_plain(given[name])] for name in COLLECTIVE_TEXTS}
        self._collectives.append(row, *{**given, **texts}.values())


def _plain(value: msgspec.Raw | str | int) -> str:
    """Return a value as text; a list is returned as JSON, whether the file has it as a list or a string."""
    if not isinstance(value, msgspec.Raw):
        return str(value)
    text = bytes(value)
    return str(msgspec.json.decode(text)) if text.startswith(b'"') else text.decode()
