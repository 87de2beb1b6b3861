"""Replay: a node takes exactly as long as its trace says; nothing takes less than a nanosecond."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[np.int64]


def replay_ns(duration_us: Column) -> Column:
    """Recorded microseconds as nanoseconds; a recorded zero becomes one nanosecond."""
    return np.where(duration_us == 0, 1, duration_us * 1000)
