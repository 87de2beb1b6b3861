"""Results of a run: Arrow tables, statistics and the summary, and the files that hold them."""

from et_sim.timeline.output_filter import OutputFilter
from et_sim.timeline.spool import CausalEvents, MessageSpool, Phases, PortRecord
from et_sim.timeline.writer import check_target, write_run

__all__ = [
    "CausalEvents",
    "MessageSpool",
    "OutputFilter",
    "Phases",
    "PortRecord",
    "check_target",
    "write_run",
]
