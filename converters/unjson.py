"""Trace files as JSON lines that `et-convert json` turns into the same bytes again.

Not here: the lines (`json_lines`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from converters.files import watched
from converters.json_lines import header_object, node_object
from converters.records import parse, split
from et_sim.basics.units import plural


@dataclass(slots=True)
class Spelling:
    """Records that come back with other bytes, because theirs are not those that protobuf writes."""

    unusual: int = 0  # the content is the same
    unknown: int = 0  # fields that the schema lacks, which JSON lines cannot hold

    def notes(self) -> Iterator[tuple[str, str]]:
        """As (label, sentence)."""
        if self.unusual:
            yield (
                "spelling",
                f"{plural(self.unusual, 'record')} come back with the same content, in other bytes",
            )
        if self.unknown:
            yield "lost", f"fields that the trace schema does not have, in {plural(self.unknown, 'record')}"


def as_lines(content: bytes, source: str) -> tuple[bytes, Spelling]:
    """The file as text; `content` has been read by the decoder."""
    spelling = Spelling()
    lines = []
    records = list(split(content))
    pairs = zip(records, parse(iter(records), source), strict=True)
    for at, (record, message) in enumerate(watched(pairs, len(records), "records")):
        lines.append(json.dumps(node_object(message) if at else header_object(message), ensure_ascii=False))
        message.DiscardUnknownFields()
        if message.SerializeToString(deterministic=True) == record:
            continue
        if message.ByteSize() < type(message).FromString(record).ByteSize():
            spelling.unknown += 1
        else:
            spelling.unusual += 1
    return ("\n".join(lines) + "\n").encode(), spelling
