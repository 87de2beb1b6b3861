"""Results of a run: Arrow tables, statistics and the summary, and the files that hold them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from et_sim.basics.lazy_names import lazy_names

if TYPE_CHECKING:
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

# Loaded on first use: a short run needs few of them.
__getattr__, __dir__ = lazy_names(
    __name__,
    __all__,
    {
        "output_filter": ("OutputFilter",),
        "spool": (
            "CausalEvents",
            "MessageSpool",
            "Phases",
            "PortRecord",
        ),
        "writer": (
            "check_target",
            "write_run",
        ),
    },
)
