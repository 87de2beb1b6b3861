"""What folding asks of a network model: which paths between two ranks take equal times."""

from __future__ import annotations

from typing import Any, Protocol


class PathKeys(Protocol):
    """Paths with equal keys take equal times."""

    differ_along_axes: bool  # whether pairs equally far apart along one dimension can have different paths

    messages_queue: bool  # whether messages wait for each other on links

    def codes(self, source: Any, target: Any) -> Any:
        """A number for the path of each pair of ranks."""

    def costs(self, source: Any, target: Any) -> Any:
        """The same where it does not matter which of its links each source takes."""

    def can_be_folded(self, source: Any, target: Any) -> bool:
        """Whether the codes of these pairs say all about their paths."""
