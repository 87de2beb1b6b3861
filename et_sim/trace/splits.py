"""Bytes that an all-to-all sends to each member of its group, as the attribute `comm_split_sizes` says them.

A text of whole numbers with blanks between, in the order of the group, the rank's own share included. A rank
says what it sends; what it receives the other members say. Not here: the group (`plan`, `preflight`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from et_sim.basics.units import MOST_BYTES, format_bytes
from et_sim.trace.columns import CollectiveKind, IntColumn, NodeKind, Trace

ATTRIBUTE = "comm_split_sizes"
_FORM = re.compile(r"\d+( \d+)*", re.ASCII)
_MOST_DIGITS = len(str(MOST_BYTES)) + 1


class SplitFault(NamedTuple):
    """What is wrong with the splits of some nodes of a trace."""

    wrong: Any  # a flag per node
    text: str  # the rest of a sentence that begins with the node
    remedy: str


def split_text(sizes: Iterable[int]) -> str:
    """The text for sizes."""
    return " ".join(str(int(size)) for size in sizes)


def has_splits(trace: Trace) -> Any:
    """Which nodes are collectives with sizes for each member."""
    return (trace.kind == NodeKind.COLL) & trace.has(ATTRIBUTE) & ~trace.is_unsized


def sizes_of_texts(trace: Trace) -> list[IntColumn]:
    """The sizes that each of a trace's texts lists; none of one that lists something else."""
    return [_sizes(text) for text in trace.split_texts]


def bytes_put_in(trace: Trace) -> IntColumn:
    """What each node puts into a collective: `comm_size`, or the sum of its splits."""
    has = has_splits(trace)
    if not has.any():
        return trace.comm_bytes
    totals = np.array([sizes.sum() for sizes in sizes_of_texts(trace)], np.int64)
    return np.where(has, totals[trace.splits], trace.comm_bytes)


def split_faults(trace: Trace) -> Iterator[SplitFault]:
    """Splits that nothing can mean."""
    is_given = trace.has(ATTRIBUTE)
    if not is_given.any():
        return
    exchanges = (trace.kind == NodeKind.COLL) & (trace.comm_type == CollectiveKind.ALL_TO_ALL)
    if (wrong := is_given & ~exchanges).any():
        yield SplitFault(wrong, f"has {ATTRIBUTE} and is no all-to-all", f"leave {ATTRIBUTE} out")
    sizes = sizes_of_texts(trace)
    empty = np.array([not len(split) for split in sizes], np.bool_)
    if (wrong := is_given & exchanges & empty[trace.splits]).any():
        remedy = 'give bytes for each member of the group with blanks between, as in "4096 0 1024"'
        yield SplitFault(wrong, f"has a {ATTRIBUTE} that is no list of sizes", remedy)
    totals = np.array([sum(split.tolist()) for split in sizes], np.float64)
    if (wrong := is_given & (totals > MOST_BYTES)[trace.splits]).any():
        fault = f"moves more than {format_bytes(MOST_BYTES)}"
        yield SplitFault(wrong, fault, f"correct {ATTRIBUTE}, which is in bytes")
        return
    sums = np.array([split.sum() for split in sizes], np.int64)
    differs = is_given & exchanges & trace.has("comm_size") & ~empty[trace.splits]
    if (wrong := differs & (sums[trace.splits] != trace.comm_bytes)).any():
        row = int(np.argmax(wrong))
        fault = (
            f"has a comm_size of {int(trace.comm_bytes[row])} bytes and a {ATTRIBUTE} of"
            f" {int(sums[trace.splits[row]])}"
        )
        yield SplitFault(wrong, fault, "let comm_size be the sum, the rank's own share included")


def _sizes(text: str) -> IntColumn:
    if not _FORM.fullmatch(text):
        return np.zeros(0, np.int64)
    words = text.split(" ")
    if max(map(len, words)) > _MOST_DIGITS:
        return np.full(1, 2 * MOST_BYTES, np.int64)
    return np.array([int(word) for word in words], np.int64)
