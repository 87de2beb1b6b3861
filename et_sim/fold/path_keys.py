"""What folding asks of a network model: which paths between two ranks take equal times."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol


class MessageColumns(NamedTuple):
    """Messages that ranks may send, as columns."""

    sources: Any
    targets: Any
    kinds: Any  # numbers: a rank sends one message of a kind at a time; or one number for all of them


class SharedLinks(Protocol):
    """Links on which messages slow each other: they are told apart together with the ranks."""

    def tell_apart(self, messages: Iterable[MessageColumns], colours: Any) -> bool:
        """Tell links apart by the messages on them, whose ends have colours; whether any now are."""

    def classes(self) -> Any:
        """Return a number for each link: equal numbers, equal links."""


class PathKeys(Protocol):
    """Paths with equal keys take equal times.

    One whose paths between different ranks all have one key may say so with an attribute `are_alike`; one
    that knows paths along lines of ranks without asking for each pair, with a method `steps`.
    """

    differ_along_axes: bool  # whether pairs equally far apart along one dimension can have different paths

    messages_queue: bool  # whether messages wait for each other on links

    @property
    def shared_links(self) -> SharedLinks | None:
        """Those whose classes the codes are made of."""

    def codes(self, source: Any, target: Any) -> Any:
        """Return a number for the path of each pair of ranks."""

    def costs(self, source: Any, target: Any) -> Any:
        """Return the same where it does not matter which of its links each source takes."""

    def can_be_folded(self, source: Any, target: Any) -> bool:
        """Return whether the codes of these pairs say all about their paths."""


class ByLink:
    """Paths between ranks that are also told apart by which of their links they use."""

    def __init__(self, paths: PathKeys) -> None:
        self._paths = paths
        self.costs = paths.codes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._paths, name)


def steps_along(paths: PathKeys, lines: Any) -> Any:
    """Return numbers of the ways from each member of a line (the last axis) to the next, from the last to the
    first.

    Members that read the same numbers round the line have the same ways to the others, in their order, and
    these say all about all of these ways. None: that is not known without asking for each pair.
    """
    known = getattr(paths, "steps", None)
    return None if known is None else known(lines)


def are_alike(paths: PathKeys) -> bool:
    """Return whether all paths between different ranks are known to have one key."""
    return bool(getattr(paths, "are_alike", False))  # a model of somebody else need not say so
