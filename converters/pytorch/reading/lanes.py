"""Threads and streams of a timeline, however their numbers are written.

Not here: which event is in which (`device`).
"""

from __future__ import annotations

from typing import Any

from converters.pytorch.columns import ABSENT, Lane
from converters.pytorch.reading.device_records import Number
from converters.pytorch.reading.growing import Memo, Table, whole_number

_NO_STREAM = 2**32 - 1  # how 32 bits without a sign say -1


def stream_number(stream: Number) -> int:
    """The number of a stream; ABSENT if the file says that there is none."""
    number = whole_number(stream)
    return ABSENT if number >= _NO_STREAM else number


class Lanes(Memo[tuple[Any, ...], int]):
    """Numbers of lanes, by (process, thread) of the host and (process, thread, device, stream) of devices as
    written; those written in two ways are one."""

    def __init__(self) -> None:
        super().__init__(lambda written: self.found[_lane(written, self._words)])
        self._words: Table[str] = Table()
        self.found: Table[Lane] = Table()


def _lane(written: tuple[Any, ...], words: Table[str]) -> Lane:
    process, thread = (_number(value, words) for value in written[:2])
    if len(written) == 2:
        return Lane(process, thread, ABSENT, ABSENT)
    device, stream = whole_number(written[2]), stream_number(written[3])
    return Lane(
        process,
        thread,
        process if device == ABSENT else device,
        stream_number(thread) if written[3] is None else stream,
    )


def _number(value: Number, words: Table[str]) -> int:
    """Processes and threads with names instead of numbers get numbers below those of any other."""
    number = whole_number(value)
    if number == ABSENT and isinstance(value, str) and value.strip() != str(ABSENT):
        return ABSENT - 1 - words[value]
    return number
