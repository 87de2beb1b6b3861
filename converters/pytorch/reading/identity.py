"""What a file is, and of which rank, without reading all of it.

Not here: deciding which files belong together.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from converters.pytorch.columns import ABSENT
from converters.pytorch.reading.decoding import Decoder, decoded
from converters.pytorch.reading.device_records import Event
from converters.pytorch.reading.host_records import Layout
from converters.pytorch.reading.json_chunks import Batch, Blocks, json_chunks
from converters.pytorch.reading.values import rank_of_name, whole_number
from et_sim.basics.errors import TraceError

HOST, DEVICE, LINKED, OTHER = "host", "device", "linked", "other"
_TAIL_BYTES = 1 << 18
_RANK = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]*?"rank"\s*:\s*(\d+)')


@dataclass(frozen=True, slots=True)
class Identity:
    """What a file is: `kind` is "host" (an execution trace), "device" (a Kineto timeline), "linked" (both
    in one, from an older linker) or "other", of which `why` says what was found instead."""

    kind: str
    rank: int = ABSENT
    process: int = ABSENT  # both recordings of a rank name the same process
    why: str = ""


def identify(path: Path) -> Identity:
    """Look at the beginning of a file, and at its end if the rank may stand there.

    A rank in the content counts more than one in the file's name.
    """
    try:
        return _identify(path)
    except TraceError as error:
        return Identity(OTHER, why=error.cause)


def _identify(path: Path) -> Identity:
    members: dict[str, Any] = {}
    for piece in json_chunks(path, ("traceEvents", "nodes")):
        if not isinstance(piece, Batch):
            members[piece.key] = decoded(piece, path)
        elif piece.key == "nodes":
            layouts = Decoder(Layout, path)(piece)
            kind = LINKED if any(layout.ts for layout in layouts) else HOST
            if "schema" not in members and not any(layout.attrs or layout.shapes for layout in layouts):
                return Identity(OTHER, why='its "nodes" are not those of an execution trace')
            return Identity(kind, rank_of_name(path), whole_number(members.get("pid")))
        else:
            return _device_identity(path, members, Decoder(Event, path)(piece))
    return Identity(OTHER, why='holds neither "nodes" nor "traceEvents"')


def _device_identity(path: Path, members: dict[str, Any], events: list[Event]) -> Identity:
    if not any(event.phase for event in events) and "schemaVersion" not in members:
        return Identity(OTHER, why="is a list of something else than events")
    distributed = members.get("distributedInfo")
    rank = whole_number(distributed.get("rank")) if isinstance(distributed, dict) else ABSENT
    if rank == ABSENT and distributed is None:
        rank = _rank_at_end(path)
    on_host = (
        event.pid for event in events if event.phase == "X" and event.category in ("cpu_op", "Operator")
    )
    process = whole_number(next(on_host, ABSENT))
    return Identity(DEVICE, rank_of_name(path) if rank == ABSENT else rank, process)


def _rank_at_end(path: Path) -> int:
    """The rank of a file whose distributedInfo comes after its events."""
    with Blocks(path) as blocks:
        match = _RANK.search(blocks.last(_TAIL_BYTES))
    return int(match.group(1)) if match else ABSENT
