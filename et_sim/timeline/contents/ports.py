"""What packets met at ports: the columns of ports.arrow, and what the summary says of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from et_sim.engine.load import Ports
from et_sim.timeline.content import Content, Texts, not_negative
from et_sim.timeline.output_filter import OutputFilter

if TYPE_CHECKING:
    from et_sim.timeline.recorded import RecordedRun


def ports_content(run: RecordedRun, _: OutputFilter) -> Content | None:
    """ports.arrow; always all of them."""
    ports = run.outcome.ports
    if ports is None:
        return None
    resources = ports.resources
    columns = {
        "link": Texts(resources.port, resources.port_names),
        "tier": Texts(resources.tier, resources.tier_names),
        **{name: not_negative(values) for name, values in ports.columns.items()},
    }
    return Content(iter([columns]))


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
