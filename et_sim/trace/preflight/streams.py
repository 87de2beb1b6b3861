"""Collectives that match each other, in the form of the checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from et_sim.basics.units import exact_bytes, format_ranks
from et_sim.trace.columns import CollectiveKind, collective_name
from et_sim.trace.preflight.problem import TemplateIndex

# Collectives in which data goes to a root or comes from it.
TO_ROOT = (CollectiveKind.REDUCE, CollectiveKind.GATHER)
FROM_ROOT = (CollectiveKind.BROADCAST, CollectiveKind.SCATTER)
ONE_WAY = (*TO_ROOT, *FROM_ROOT)
SPLIT = -1  # replaces the bytes of an all-to-all with sizes for each member


class ComparedStream(NamedTuple):
    """Collectives that are compared with each other: those of a group; broadcasts without waits are
    separate.
    """

    group: str  # "" is the group of all ranks
    is_broadcast: bool
    described: tuple[int, ...] = ()  # members, if the traces describe the group; ascending

    @property
    def name(self) -> str:
        """Return the name in messages: `group 3`, `group 3 (ranks 0-1)` or `the group of all ranks`."""
        members = f" (ranks {format_ranks(self.described)})" if self.described else ""
        return f"group {self.group}{members}" if self.group else "the group of all ranks"

    @property
    def noun(self) -> str:
        """Return the noun for the collectives of the stream."""
        return "broadcast" if self.is_broadcast else "collective"


class CollectiveSequence(NamedTuple):
    """The collectives of a template in a stream: rows, and (type, bytes, dimensions, root) of each."""

    rows: Any
    content: Any

    @property
    def plain(self) -> Any:
        """Return type and bytes of each collective."""
        return self.content[:, :2]


Streams = Mapping[ComparedStream, Mapping[int, CollectiveSequence]]


def follows_rule(index: TemplateIndex, stream: ComparedStream) -> bool:
    """Return whether the stream represents all groups of a rule; descriptions in traces override rules."""
    return stream.group in index.workload.group_rules and not stream.described


def collective_text(index: TemplateIndex, rank: int, sequence: CollectiveSequence, at: int) -> str:
    """Return a collective in words, such as `all_reduce of 1 MiB (node 7 "grads" in x.0.et)`."""
    number, size = int(sequence.content[at, 0]), int(sequence.content[at, 1])
    node = index.workload.trace(rank).describe(int(sequence.rows[at]))
    size_text = "with sizes for each member" if size == SPLIT else f"of {exact_bytes(size)}"
    return f"{collective_name(number)} {size_text} ({node} in {index.file_of(rank)})"
