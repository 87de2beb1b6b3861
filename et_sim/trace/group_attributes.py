"""Attributes of nodes with texts about groups: their members, and the bytes for each member.

PyTorch writes process groups into METADATA nodes. The text of such a node is a list that holds one string,
`['[{"pg_name": "1", "ranks": [0, 1]}]']`, and the string is JSON. A description applies to the whole trace,
wherever its node is, and overrides a group of that name in the groups file. Other metadata is ignored.

`comm_split_sizes` of an all-to-all is a text of whole numbers with blanks between, in the order of the group,
the rank's own share included. It lists the bytes that the rank sends; other members list those that it
receives.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.errors import TraceError
from et_sim.basics.group_names import group_key
from et_sim.basics.units import MOST_BYTES, format_bytes
from et_sim.trace.columns import CollectiveKind, IntColumn, NodeKind, Trace

ALL_RANKS: tuple[int, ...] = ()  # stands for every rank in a description
_WRAPPING = 2  # characters in front of the JSON text and behind it
_GROUPS_FORM = 'process groups are written as [\'[{"pg_name": "1", "ranks": [0, 1]}, …]\']'


def read_process_groups(trace: Trace) -> dict[str, tuple[int, ...]]:
    """Return the members of every group that the trace describes, by `group_key`; ALL_RANKS: all of them."""
    groups: dict[str, tuple[int, ...]] = {}
    for row in trace.metadata_text:
        for name, members in [_one(trace, row, entry) for entry in _entries(trace, row) or ()]:
            key = group_key(name)
            if groups.setdefault(key, members) != members:
                raise _refusal(
                    trace,
                    row,
                    f"describes process group {name!r} again, with other members",
                    "describe every group once per trace",
                )
    return groups


def count_metadata(trace: Trace) -> tuple[int, int]:
    """Return the numbers of METADATA nodes with and without descriptions of process groups."""
    total = int((trace.kind == NodeKind.METADATA).sum())
    about = sum(1 for row in trace.metadata_text if _entries(trace, row) is not None)
    return about, total - about


def process_group_text(groups: Mapping[str, Sequence[int]]) -> str:
    """Return the text of a METADATA node that describes groups; no members means all ranks."""
    entries = [{"pg_name": name, "ranks": list(members)} for name, members in groups.items()]
    return f"['{json.dumps(entries)}']"


def _entries(trace: Trace, row: int) -> list[Any] | None:
    """Return the descriptions in a node's text; None if it has other content."""
    text = trace.metadata_text[row]
    if "pg_name" not in text:
        return None
    for candidate in (text[_WRAPPING:-_WRAPPING], text):
        try:
            content = json.loads(candidate)
        except ValueError:
            continue
        if isinstance(content, list):
            return content
    raise _refusal(trace, row, "mentions pg_name, and its text is not a list of process groups", _GROUPS_FORM)


def _one(trace: Trace, row: int, entry: Any) -> tuple[str, tuple[int, ...]]:
    if not isinstance(entry, dict) or not {"pg_name", "ranks"} <= entry.keys():
        raise _refusal(trace, row, "describes a process group without pg_name or ranks", _GROUPS_FORM)
    name, ranks = entry["pg_name"], entry["ranks"]
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise _refusal(trace, row, f"names a process group {name!r}", "its name is a text or a number")
    if not isinstance(ranks, list) or any(isinstance(r, bool) or not isinstance(r, int) for r in ranks):
        raise _refusal(
            trace, row, f"gives process group {name!r} ranks that are no list of whole numbers", _GROUPS_FORM
        )
    if len(set(ranks)) < len(ranks):
        raise _refusal(trace, row, f"gives process group {name!r} a rank twice", "name every rank once")
    return str(name), tuple(ranks)


def _refusal(trace: Trace, row: int, cause: str, remedy: str) -> TraceError:
    return TraceError(f"{trace.describe(row)} {cause}", place=trace.source, remedy=remedy)


ATTRIBUTE = "comm_split_sizes"
_SIZES_FORM = re.compile(r"\d+( \d+)*", re.ASCII)
_MOST_DIGITS = len(str(MOST_BYTES)) + 1


class NodeFault(Struct, frozen=True):
    """A fault of some nodes of a trace."""

    wrong: Any  # a flag per node
    text: str  # the rest of a sentence that begins with the node
    remedy: str

    def sentence(self, trace: Trace) -> str:
        """Return a sentence about the first of the nodes."""
        rows = np.flatnonzero(self.wrong)
        more = f", like {len(rows) - 1} more" if len(rows) > 1 else ""
        return f"{trace.describe(int(rows[0]))} {self.text}{more}"


def split_text(sizes: Iterable[int]) -> str:
    """Return the text for sizes."""
    return " ".join(str(int(size)) for size in sizes)


def has_splits(trace: Trace) -> Any:
    """Return a mask of the collectives with sizes for each member."""
    return (trace.kind == NodeKind.COLL) & trace.has(ATTRIBUTE) & ~trace.is_unsized


def sizes_of_texts(trace: Trace) -> list[IntColumn]:
    """Return the sizes that each of a trace's texts lists; none for invalid texts."""
    return [_sizes(text) for text in trace.split_texts]


def bytes_put_in(trace: Trace) -> IntColumn:
    """Return the bytes that each node puts into a collective: `comm_size`, or the sum of its splits."""
    has = has_splits(trace)
    if not has.any():
        return trace.comm_bytes
    totals = np.array([sizes.sum() for sizes in sizes_of_texts(trace)], np.int64)
    return np.where(has, totals[trace.splits], trace.comm_bytes)


def split_faults(trace: Trace) -> Iterator[NodeFault]:
    """Yield the faults of invalid splits."""
    is_given = trace.has(ATTRIBUTE)
    if not is_given.any():
        return
    exchanges = (trace.kind == NodeKind.COLL) & (trace.comm_type == CollectiveKind.ALL_TO_ALL)
    if (wrong := is_given & ~exchanges).any():
        yield NodeFault(wrong, f"has {ATTRIBUTE} and is no all-to-all", f"leave {ATTRIBUTE} out")
    sizes = sizes_of_texts(trace)
    empty = np.array([not len(split) for split in sizes], np.bool_)
    if (wrong := is_given & exchanges & empty[trace.splits]).any():
        remedy = 'give bytes for each member of the group with blanks between, as in "4096 0 1024"'
        yield NodeFault(wrong, f"has a {ATTRIBUTE} that is no list of sizes", remedy)
    totals = np.array([sum(split.tolist()) for split in sizes], np.float64)
    if (wrong := is_given & (totals > MOST_BYTES)[trace.splits]).any():
        fault = f"moves more than {format_bytes(MOST_BYTES)}"
        yield NodeFault(wrong, fault, f"correct {ATTRIBUTE}, which is in bytes")
        return
    sums = np.array([split.sum() for split in sizes], np.int64)
    differs = is_given & exchanges & trace.has("comm_size") & ~empty[trace.splits]
    if (wrong := differs & (sums[trace.splits] != trace.comm_bytes)).any():
        row = int(np.argmax(wrong))
        fault = (
            f"has a comm_size of {int(trace.comm_bytes[row])} bytes and a {ATTRIBUTE} of"
            f" {int(sums[trace.splits[row]])}"
        )
        yield NodeFault(wrong, fault, "let comm_size be the sum, the rank's own share included")


def _sizes(text: str) -> IntColumn:
    if not _SIZES_FORM.fullmatch(text):
        return np.zeros(0, np.int64)
    words = text.split(" ")
    if max(map(len, words)) > _MOST_DIGITS:
        return np.full(1, 2 * MOST_BYTES, np.int64)
    return np.array([int(word) for word in words], np.int64)
