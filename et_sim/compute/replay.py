"""Replay: a node takes exactly as long as its trace says; nothing takes less than a nanosecond."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from et_sim.units import LONGEST_NS

Column = npt.NDArray[np.int64]


def replay_ns(duration_us: Column) -> Column:
    """Recorded microseconds as nanoseconds; a recorded zero becomes one nanosecond.

    Cut at what no run may reach, so that nothing overflows before it is refused.
    """
    return np.where(duration_us == 0, 1, np.minimum(duration_us, LONGEST_NS // 1000 + 1) * 1000)
