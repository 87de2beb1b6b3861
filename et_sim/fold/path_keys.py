"""The path keys of a network model, for folding: which paths between two ranks take equal times."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

# The ends of the messages on a link: one rank, which sends them all; ranks of one block, which send them all,
# or get them all; others.
FROM_ONE, FROM_BLOCK, TO_BLOCK, FROM_SEVERAL = range(4)


class MessageColumns(NamedTuple):
    """Messages that ranks may send, as columns."""

    sources: Any
    targets: Any
    kinds: Any  # a rank sends one message of a kind at a time; or one number for all of them


class LinkTurns(Struct, frozen=True, eq=False):
    """Ends of messages that take turns on links."""

    sources: Any  # by class of links: one of the numbers above
    block_of_rank: Any  # numbered from 0
    circle: int  # the number of blocks if equal messages go equally far round them; else 0


class SharedLinks(Protocol):
    """Links on which messages slow each other: they are distinguished together with the ranks."""

    def separate(self, messages: Iterable[MessageColumns], colours: Any) -> bool:
        """Separate links by the messages on them, whose ends have colours; return whether any now differ."""

    def split(self, messages: Iterable[MessageColumns], colours: Any) -> Any:
        """Return colours that separate ranks whose messages take turns on a link; None: they differ.

        All messages of one kind come at once.
        """

    def classes(self) -> Any:
        """Return a number for each link; equal numbers, equal links."""

    def turns_of(self, messages: Iterable[MessageColumns], actor_of_rank: Any) -> LinkTurns | None:
        """Return the sources of messages by class of links; None: links do not carry messages in turn."""


class PathKeys(Protocol):
    """Paths with equal keys take equal times.

    If all paths between different ranks have one key, an attribute `are_alike` may be True; if paths along
    lines of ranks can be compared without each pair, a method `steps` does so.
    """

    differ_along_axes: bool  # pairs equally far apart along one dimension can have different paths

    messages_queue: bool  # messages wait for each other on links

    @property
    def shared_links(self) -> SharedLinks | None:
        """Return the links whose classes the codes are made of."""

    def over_links(self) -> PathKeys | None:
        """Return keys that cover links of third ranks, where these do not; None: there are none."""

    def codes(self, source: Any, target: Any) -> Any:
        """Return a number for the path of each pair of ranks."""

    def costs(self, source: Any, target: Any) -> Any:
        """Return the same where it does not matter which of its links each source takes."""

    def can_be_folded(self, source: Any, target: Any) -> bool:
        """Return whether the codes of these pairs determine their paths."""


class ByLink:
    """Paths between ranks that are also distinguished by the links that they use."""

    def __init__(self, paths: PathKeys) -> None:
        self._paths = paths
        self.costs = paths.codes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._paths, name)


def steps_along(paths: PathKeys, lines: Any) -> Any:
    """Return numbers of the ways from each member of a line (the last axis) to the next, the last to the
    first.

    Members that read the same numbers round the line have the same ways to the others, in their order, and
    these determine all of these ways. Return None if that needs each pair.
    """
    known = getattr(paths, "steps", None)
    return None if known is None else known(lines)


def are_alike(paths: PathKeys) -> bool:
    """Return whether all paths between different ranks have one key."""
    return bool(getattr(paths, "are_alike", False))  # other models may lack the attribute
