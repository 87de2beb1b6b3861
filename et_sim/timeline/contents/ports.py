"""What packets met at ports: the columns of ports.arrow."""

from __future__ import annotations

from et_sim.timeline.content import Content, Texts, not_negative
from et_sim.timeline.output_filter import OutputFilter
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
