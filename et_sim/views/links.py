"""How busy links are, over all of the time and in slices of it, from path.arrow of runs on the link model.

A link is busy while it serialises a message. The links of an actor stand for those of each of its ranks.

Not here: which links decide how long the run takes (`critical_path`).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from et_sim.units import format_ns
from et_sim.views.operations import coded, integers
from et_sim.views.run_directory import RunDirectory
from et_sim.views.selection import EVERYTHING, Selection
from et_sim.views.text import fitted, plural, share

COLUMNS = ("start_ns", "end_ns", "what", "place")
SLICES = 20
SHOWN = 20
LEVELS = " ▁▂▃▄▅▆▇█"
NOT_RECORDED = "links were not recorded: simulate with --model link --detail path"


@dataclass(frozen=True, slots=True)
class LinkUse:
    """One link of each of these ranks."""

    dimension: int
    ranks: str
    link: str
    messages: int
    busy_ns: int
    busy_shares: tuple[float, ...]  # of slices of the time, one after the other

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


def link_uses(run: RunDirectory, part: Selection = EVERYTHING) -> list[LinkUse] | None:
    """Links that carried anything, the busiest first; None if the run did not record them."""
    part.check_ranks(run)
    wiring = _wiring(run)
    if not wiring:
        return None
    actors = [part.names(ranks) for ranks in run.actors()["ranks"].to_pylist()]
    firsts = [dimension["first"] for dimension in wiring]
    links = max(d["first"] + len(d["ports"]) * len(actors) for d in wiring)
    messages, busy = _occupation(run, part, links)
    length = part.length_ns(run.summary["makespan_ns"])
    edges = np.arange(SLICES + 1) * length // SLICES
    found = []
    for place in np.flatnonzero(messages).tolist():
        number = int(np.searchsorted(firsts, place, side="right")) - 1
        actor, port = divmod(place - firsts[number], len(wiring[number]["ports"]))
        if actors[actor]:
            shares = tuple((busy[place] / np.maximum(np.diff(edges), 1)).tolist())
            name = wiring[number]["ports"][port]
            total = int(busy[place].sum())
            found.append(LinkUse(number, actors[actor], name, int(messages[place]), total, shares))
    return sorted(found, key=lambda one: -one.busy_ns)


def _wiring(run: RunDirectory) -> list[dict[str, Any]]:
    """Per dimension: the number of its first link, and the names of the links that every actor has."""
    table = run.path_record() if run.holds("path") else None
    if table is None:
        return []
    content: list[dict[str, Any]] = json.loads((table.schema.metadata or {}).get(b"links", b"[]"))
    return content


def _occupation(run: RunDirectory, part: Selection, links: int) -> tuple[Any, Any]:
    """How many messages each link carried, and how long it was busy in every slice."""
    begin = part.window[0] if part.window else 0
    length = part.length_ns(run.summary["makespan_ns"])
    messages, busy = np.zeros(links, np.int64), np.zeros((links, SLICES), np.int64)
    for rows in run.batches("path", COLUMNS):
        names = rows["what"].dictionary.to_pylist()
        place = integers(rows["place"], missing=-1)
        start, end = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
        is_serial = coded(rows["what"]) == names.index("serialisation")
        is_use = is_serial & (place >= 0) & part.touches(start, end)
        place, start, end = place[is_use], start[is_use] - begin, end[is_use] - begin
        np.add.at(messages, place, 1)
        for number in range(SLICES):
            first, last = number * length // SLICES, (number + 1) * length // SLICES
            np.add.at(busy[:, number], place, np.maximum(np.minimum(end, last) - np.maximum(start, first), 0))
    return messages, busy


def link_lines(run: RunDirectory, found: list[LinkUse], part: Selection, width: int) -> list[str]:
    """One line for each link, with how busy it was over time."""
    if not found:
        return ["no link carried a message"]
    length = part.length_ns(run.summary["makespan_ns"])
    shown = part.cut(found, SHOWN)
    rows = [("dimension", "ranks", "link", "messages", "busy", "", "over time")]
    for one in shown:
        strip = "".join(LEVELS[round(used * (len(LEVELS) - 1))] for used in one.busy_shares)
        counted, of_all = f"{one.messages:,}", share(one.busy_ns, length)
        cells = (str(one.dimension), one.ranks, one.link, counted, format_ns(one.busy_ns), of_all)
        rows.append((*cells, f"|{strip}|"))
    lines = fitted(rows, "<<<>>><", width, shrink={1: 6, 2: 8}, drop=(3,))
    if len(shown) < len(found):
        lines.append(f"… and {plural(len(found) - len(shown), 'less busy link')}: --top, or --json")
    whole = "the window" if part.window else "the makespan"
    return [
        *lines,
        f"shares are of {whole}, which is cut into {SLICES} slices; a full bar is busy throughout",
    ]
