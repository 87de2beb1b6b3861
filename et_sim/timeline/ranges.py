"""Sets of ranks as short text: "0-3,6"."""

from __future__ import annotations

from typing import Any

import numpy as np


def compact(ranks: Any) -> str:
    """Ranks in ascending order, runs of two or more as ranges."""
    ordered = np.sort(np.asarray(ranks, np.int64))
    if not len(ordered):
        return ""
    breaks = np.flatnonzero(np.diff(ordered) != 1)
    firsts = ordered[np.concatenate(([0], breaks + 1))]
    lasts = ordered[np.concatenate((breaks, [len(ordered) - 1]))]
    runs = zip(firsts.tolist(), lasts.tolist(), strict=True)
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
