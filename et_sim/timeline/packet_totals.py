"""What the summary says of packets. Not here: each port (`contents.ports`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.engine.load import Ports


def packets(ports: Ports | None) -> dict[str, Any] | None:
    """What the summary says."""
    if ports is None:
        return None
    found: dict[str, Any] = dict(ports.totals)
    for name, column in (("lost_at", "lost"), ("paused_at", "pauses")):
        most = int(np.argmax(ports.columns[column]))
        is_any = ports.columns[column][most] > 0
        found[name] = ports.resources.port_names[ports.resources.port[most]] if is_any else None
    return found
