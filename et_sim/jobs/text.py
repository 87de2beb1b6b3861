"""NPUs of a job as text, in the order of its ranks: `0-3,8-14/2,5`."""

from __future__ import annotations

from typing import Any

LEAST_STRIDED = 3  # NPUs that are worth a range with a step


def npus_text(npus: Any) -> str:
    """Which NPU each rank runs on, as `parse_ranks` reads it."""
    found, listed, at = [], [int(npu) for npu in npus], 0
    while at < len(listed):
        step = listed[at + 1] - listed[at] if at + 1 < len(listed) else 0
        end = at + 1
        while step > 0 and end < len(listed) and listed[end] - listed[end - 1] == step:
            end += 1
        if step == 1 and end - at > 1:
            found.append(f"{listed[at]}-{listed[end - 1]}")
        elif end - at >= LEAST_STRIDED:
            found.append(f"{listed[at]}-{listed[end - 1]}/{step}")
        else:
            end = at + 1
            found.append(str(listed[at]))
        at = end
    return ",".join(found)
