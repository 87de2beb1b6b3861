"""Threads and streams of a timeline, however their numbers are written.

Not here: which event is in which (`device`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from converters.pytorch.columns import ABSENT, Lane
from converters.pytorch.reading.device_records import Number
from converters.pytorch.reading.growing import Table, whole_number

_NO_STREAM = 2**32 - 1  # how 32 bits without a sign say -1


def stream_number(stream: Number) -> int:
    """The number of a stream; ABSENT if the file says that there is none."""
    number = whole_number(stream)
    return ABSENT if number >= _NO_STREAM else number


class Lanes(Table[tuple[Any, ...]]):
    """Numbers (process, thread) of the host and (process, thread, device, stream) of devices as written."""

    def finish(self) -> tuple[npt.NDArray[np.int32], tuple[Lane, ...]]:
        """The lanes, and for each number given so far its place among them: lanes written in two ways
        are one."""
        words: Table[str] = Table()
        found: Table[Lane] = Table()
        places = [found[_lane(written, words)] for written in self]
        return np.array(places, np.int32), tuple(found)


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
