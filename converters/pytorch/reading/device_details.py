"""What only some events of a timeline say: waits, sizes, collectives, recorded inputs.

Not here: what every event says (`device`).
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from converters.pytorch.columns import ABSENT, Collectives, EventSort, Transfers, WaitColumns
from converters.pytorch.reading.device_records import Arguments, Event
from converters.pytorch.reading.growing import Memo, Rows, Table
from converters.pytorch.reading.lanes import stream_number
from converters.pytorch.reading.names import values_matter

_SHAPES = list[list[int | list[int | list[Any]]]]  # of tensors, and of lists of them
_MOVES = frozenset((EventSort.MEMCPY, EventSort.MEMSET, EventSort.LAUNCH, EventSort.ACCELERATOR))


class Details:
    """Collects them, with the number of the event's row beside each."""

    def __init__(self) -> None:
        self.texts: Table[str | bytes] = Table()
        self._keeps_values: Memo[str, bool] = Memo(values_matter)
        self._inputs: Memo[tuple[bytes, bytes, bytes], int] = Memo(self._inputs_text)
        self.unreadable_inputs = 0  # recorded inputs, different ones, that are no lists of the right kind
        self._waits = Rows("row", "sort", "stream", "event", "record_correlation")
        self._transfers = Rows("row", "size_bytes")
        self._collectives = Rows(*Collectives.__dataclass_fields__)

    def add(self, first_row: int, events: list[Event], sorts: list[int], arguments: list[Arguments]) -> None:
        """Take the details of consecutive rows."""
        for row, own in enumerate(arguments):
            if own.operation is not None:
                self._collective(first_row + row, own)
            if own.sync_sort is not None or own.waited_stream is not None:
                self._wait(first_row + row, own, events[row].name)
            if (own.size_bytes is not None or own.size is not None) and sorts[row] in _MOVES:
                self._transfers.append(
                    first_row + row, own.size if own.size_bytes is None else own.size_bytes
                )

    def inputs_of(self, events: list[Event], arguments: list[Arguments]) -> list[int]:
        """The text of each event's recorded inputs."""
        inputs, keeps = self._inputs, self._keeps_values
        return [
            inputs[bytes(own.dims), bytes(own.types), bytes(own.values) if keeps[event.name] else b""]
            if own.types or own.dims
            else ABSENT
            for event, own in zip(events, arguments, strict=True)
        ]

    def waits(self) -> WaitColumns:
        return WaitColumns(**self._waits.finish())

    def transfers(self) -> Transfers:
        found = self._transfers.finish()
        return Transfers(found["row"], found["size_bytes"].astype(np.int64))

    def collectives(self) -> Collectives:
        return Collectives(**self._collectives.finish())

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

    def _wait(self, row: int, own: Arguments, name: str) -> None:
        sort = name if own.sync_sort is None else own.sync_sort
        stream = stream_number(own.waited_stream)
        self._waits.append(row, self.texts[sort], stream, own.waited_event, own.waited_record)

    def _collective(self, row: int, own: Arguments) -> None:
        texts = self.texts
        self._collectives.append(
            row,
            texts[own.operation or ""],
            texts[own.dtype],
            own.in_elements,
            own.out_elements,
            own.group_size,
            texts[str(own.group_name)],
            texts[own.group_description],
            texts[_plain(own.group_ranks)],
            own.rank_start,
            own.rank_stride,
            texts[_plain(own.in_splits)],
            texts[_plain(own.out_splits)],
            own.source,
            own.destination,
            own.number,
        )


def _plain(value: msgspec.Raw) -> str:
    """A list that some files write as a list and others as a string of one."""
    text = bytes(value)
    return str(msgspec.json.decode(text)) if text.startswith(b'"') else text.decode()
