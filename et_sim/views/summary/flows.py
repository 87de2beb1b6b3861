"""Messages as packets, those that took longest first, and what delayed them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.units import format_ns, plural
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.selection import EVERYTHING, Selection
from et_sim.views.run.slices import FLOW_FIGURES, FlowTable, flow_table
from et_sim.views.sheet import Sheet, SheetColumn
from et_sim.views.text import not_shown, prose, share
from et_sim.views.view import Forms

SHOWN = 20
FLITS_ONLY = "with credits, messages are not recorded as packets: --detail messages has their times"


class Flows(Struct, frozen=True, eq=False):
    """Messages of a part of a run."""

    table: FlowTable
    rows: Any  # those that took longest first

    def as_dicts(self, count: int | None = None) -> list[dict[str, Any]]:
        """Return the first messages for `--json`."""
        return [self._as_dict(row) for row in self.rows[:count].tolist()]

    def _as_dict(self, row: int) -> dict[str, Any]:
        figures = {name: int(self.table.figures[name][row]) for name in FLOW_FIGURES}
        taken = max(figures["arrived_ns"] - figures["begin_ns"], 1)
        rates = {"bytes_per_ns": round(figures["bytes"] / taken, 6)}
        rates["mean_queue_ns"] = round(float(self.table.mean_queue_ns[row]), 3)
        return figures | rates | {"way": [int(link) for link in self.table.ways[row].split()]}


def flows_of(run: RunDirectory, part: Selection = EVERYTHING) -> Flows | None:
    """Return messages from or to selected ranks, those that took longest first; None: not recorded."""
    table = flow_table(run)
    if table is None:
        return None
    figures = table.figures
    kept = part.touches(figures["begin_ns"], figures["arrived_ns"])
    if part.ranks:
        part.check_ranks(run)
        chosen = np.concatenate([np.arange(ranks.start, ranks.stop, ranks.step) for ranks in part.ranks])
        kept &= np.isin(figures["source"], chosen) | np.isin(figures["target"], chosen)
    rows = np.flatnonzero(kept)
    taken = figures["arrived_ns"][rows] - figures["begin_ns"][rows]
    return Flows(table, rows[np.lexsort((rows, -taken))])


def flow_lines(run: RunDirectory, part: Selection, width: int) -> list[str]:
    """Return one line for each message, and the delays of all."""
    flows = flows_of(run, part)
    if flows is None or not len(flows.rows):
        return prose([FLITS_ONLY if flows is None else "packets carried no message"], width)
    shown = flows.as_dicts(part.top or SHOWN)
    lines = SHEET.lines(shown, width)
    lines += not_shown(len(flows.rows) - len(shown), "faster message", ": --top, or --json")
    lines += ["", _in_all(flows)]
    note = "queue: wait of the last packet on its way; again: packets sent again"
    return prose([*lines, note], width)


def flow_data(run: RunDirectory, part: Selection) -> Any:
    """Return the messages for `--json`."""
    flows = flows_of(run, part)
    return None if flows is None else flows.as_dicts(part.top)


def _held(name: str, flow: dict[str, Any]) -> str:
    return format_ns(flow[name]) if flow[name] else ""


SHEET = Sheet(
    (
        SheetColumn("from", lambda flow: str(flow["source"])),
        SheetColumn("to", lambda flow: str(flow["target"])),
        SheetColumn("bytes"),
        SheetColumn("begins", "begin_ns"),
        SheetColumn("takes", lambda flow: format_ns(flow["arrived_ns"] - flow["begin_ns"])),
        SheetColumn("rate", lambda flow: f"{8 * flow['bytes_per_ns']:.3g} Gbps"),
        SheetColumn("window", partial(_held, "window_ns"), is_optional=True),
        SheetColumn("held rate", partial(_held, "rate_ns"), is_optional=True),
        SheetColumn("paused", partial(_held, "paused_ns"), is_optional=True),
        SheetColumn("queue", partial(_held, "last_queue_ns"), is_optional=True),
        SheetColumn(
            "again", lambda flow: f"{flow['sent_again']:,}" if flow["sent_again"] else "", is_optional=True
        ),
    ),
    drop=("paused", "begins", "held rate", "rate", "bytes"),
)
FLOWS = Forms(flow_lines, flow_data)


def _in_all(flows: Flows) -> str:
    """Return the delays of messages as shares of their time."""
    figures = {name: column[flows.rows] for name, column in flows.table.figures.items()}
    whole = int((figures["arrived_ns"] - figures["begin_ns"]).sum())
    parts = (("windows", "window_ns"), ("rates", "rate_ns"), ("queues", "last_queue_ns"))
    held = ", ".join(f"{name} {share(int(figures[key].sum()), whole)}" for name, key in parts)
    again, late = int(figures["sent_again"].sum()), int(figures["timeouts"].sum())
    text = f"{plural(len(flows.rows), 'message')}; of their time, {held} held them up"
    return (
        f"{text}; {plural(again, 'packet')} sent again, {plural(late, 'timeout')}" if again or late else text
    )
