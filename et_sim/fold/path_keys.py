"""What folding asks of a network model: which paths between two ranks take equal times."""

from __future__ import annotations

from typing import Any, Protocol


class PathKeys(Protocol):
    """Paths with equal keys take equal times."""

    differ_along_lines: bool  # whether pairs equally far apart along one dimension can have different paths

    def codes(self, source: Any, target: Any) -> Any:
        """A number for the path of each pair of ranks."""

    def can_be_folded(self, source: Any, target: Any) -> bool:
        """Whether the codes of these pairs say all about their paths."""
