"""Filter of the output: all rows of a run, or those of some ranks in a window; and the compression.

The summary and the actors always cover the whole run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.errors import UsageError, did_you_mean
from et_sim.basics.units import format_ranks

COMPRESSIONS = ("lz4", "zstd", "none")


class OutputFilter(Struct, frozen=True):
    """Rows of the actors of these ranks (all if empty) that touch this window (None: any time)."""

    ranks: tuple[range, ...] = ()
    window: tuple[int, int] | None = None
    compression: str = "lz4"

    def __post_init__(self) -> None:
        if self.compression not in COMPRESSIONS:
            raise UsageError(
                f"there is no compression {self.compression!r}",
                remedy=did_you_mean(self.compression, COMPRESSIONS) or f"there are {', '.join(COMPRESSIONS)}",
            )

    @property
    def codec(self) -> str | None:
        """Return Arrow's name of the compression."""
        return None if self.compression == "none" else self.compression

    def check_ranks(self, ranks: int) -> None:
        """Refuse ranks that a run does not have."""
        last = max((chosen[-1] for chosen in self.ranks), default=0)
        if last >= ranks:
            raise UsageError(
                f"there is no rank {last}", place="--ranks", remedy=f"the last one is {ranks - 1}"
            )

    def actors(self, actor_of_rank: Any) -> Any:
        """Return a mask of the actors that are kept; None: all."""
        if not self.ranks:
            return None
        kept = np.zeros(int(actor_of_rank.max()) + 1, np.bool_)
        for ranks in self.ranks:
            kept[actor_of_rank[ranks.start : ranks.stop : ranks.step]] = True
        return kept

    def touches(self, start_ns: Any, end_ns: Any) -> Any:
        """Return which spans overlap the window; spans without an end last for ever. None: all."""
        if self.window is None:
            return None
        first, last = self.window
        return (start_ns < last) & ((np.maximum(end_ns, start_ns + 1) > first) | (end_ns < 0))

    def mask(self, actors: Any, actor: Any, start_ns: Any, end_ns: Any) -> Any:
        """Return a mask of the rows that are kept; `actors` masks the actors. None: all."""
        of_actors = None if actors is None else actors[actor] & (actor >= 0)
        touched = self.touches(start_ns, end_ns)
        if of_actors is None or touched is None:
            return touched if of_actors is None else of_actors
        return of_actors & touched

    def as_dict(self) -> dict[str, Any]:
        """Return the entry of the manifest; empty if everything is kept."""
        content: dict[str, Any] = {}
        if self.ranks:
            content["ranks"] = format_ranks(sorted(set().union(*self.ranks)))
        if self.window is not None:
            content["window_ns"] = list(self.window)
        return content


EVERYTHING = OutputFilter()
