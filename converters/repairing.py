"""A trace file without the dependencies that lead nowhere.

Chakra's PyTorch converter removes the root of a trace although other nodes still name it in their
control dependencies; readers that honour these refuse the file. Only the records concerned are
written anew, so attributes that the simulator does not use stay for other tools.
"""

from __future__ import annotations

from pathlib import Path

from converters.records import Dropped, without_dangling
from et_sim.trace import Trace
from et_sim.trace.disk import read_unpacked


def repaired(path: Path, trace: Trace) -> tuple[bytes, Dropped]:
    """The new content, and what was dropped; `trace` is `path`, read with `drop_dangling`."""
    content = read_unpacked(path)
    if not trace.dropped_dependencies:
        return content, Dropped()
    return without_dangling(content, set(trace.node_id.tolist()), str(path))
