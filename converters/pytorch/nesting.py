"""Which call of a thread encloses which, in compiled code; calls are sorted by lane and start.

Not here: which events are calls, and their order (`calls`).
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.entry_points import entry

NONE = -1


@entry(what="the reader of PyTorch traces", seconds=lambda lane, *_: len(lane) * 1e-6)
def nest(lane: Any, start: Any, end: Any, parent: Any, open_calls: Any) -> None:
    """Fill `parent`; `open_calls` is room for as many calls as there are."""
    depth = 0
    for call in range(len(start)):
        if call > 0 and lane[call] != lane[call - 1]:
            depth = 0
        while depth > 0 and end[open_calls[depth - 1]] <= start[call]:
            depth -= 1
        parent[call] = open_calls[depth - 1] if depth > 0 else NONE
        open_calls[depth] = call
        depth += 1
