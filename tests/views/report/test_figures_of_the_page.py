"""Figures on the page equal those of its run's tables, recalculated by nodes and intervals of time."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import pytest
from runs_to_show import pipeline

from et_sim.basics.units import format_bytes, format_ns
from et_sim.views import open_run
from et_sim.views.markup import bar
from et_sim.views.report.page import report
from et_sim.views.run.directory import RunDirectory
from et_sim.views.text import share

pytestmark = pytest.mark.usefixtures("warm_engine")
Part = tuple[int, int, str]  # from, to, and activity
MOVES = ("send", "receive", "all_reduce")


class Cells(HTMLParser):
    """Texts by the id of a section: the rows of its tables, its list's entries, and its tiles."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.section = ""
        self.rows: dict[str, list[list[str]]] = defaultdict(list)
        self.entries: dict[str, list[str]] = defaultdict(list)
        self.tiles: dict[str, str] = {}
        self._into: list[str] | None = None
        self._name = ""
        self.feed(content)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "section":
            self.section = dict(attrs).get("id") or ""
        elif tag == "tr":
            self.rows[self.section].append([])
        elif tag in ("td", "th"):
            self._into = self.rows[self.section][-1]
            self._into.append("")
        elif tag in ("li", "dt", "dd"):
            self._into = self.entries[self.section]
            self._into.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == "dt":
            self._name = self.entries[self.section][-1]
        elif tag == "dd":
            self.tiles[self._name] = self.entries[self.section][-1]
        if tag in ("td", "th", "li", "dt", "dd"):
            self._into = None

    def handle_data(self, data: str) -> None:
        if self._into is not None:
            self._into[-1] += data


@pytest.fixture(params=[True, False], ids=["folded", "unfolded"], scope="module")
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return open_run(pipeline(tmp_path_factory.mktemp("page") / "run", fold=request.param, detail="messages"))


@pytest.fixture(scope="module")
def cells(run: RunDirectory) -> Cells:
    return Cells(report(run))


def _nodes(run: RunDirectory) -> list[dict[str, Any]]:
    nodes: list[dict[str, Any]] = run.table("timeline").to_pylist()
    return nodes


def _parts(nodes: Iterable[dict[str, Any]]) -> list[Part]:
    """Return the parts of an actor's nodes: they are queued, wait, and then transfer, or compute."""
    parts = []
    for node in nodes:
        start, end = node["start_ns"], node["end_ns"]
        if node["kind"] == "compute":
            parts.append((start, end, "compute"))
        else:
            assert node["kind"] in MOVES
            admitted = start + (node["queued_ns"] or 0)
            moves = min(admitted + (node["waiting_ns"] or 0), end)
            parts += [(admitted, moves, "waiting"), (moves, end, "transfer")]
    return parts


def _moments(parts: list[Part]) -> Iterable[tuple[int, set[str]]]:
    """Yield each length of time with the parts that are under way together."""
    times = sorted({time for start, end, _ in parts for time in (start, end)})
    for start, end in pairwise(times):
        yield end - start, {part for first, last, part in parts if first <= start and end <= last}


def _spent(parts: list[Part]) -> dict[str, int]:
    """Return the time of each activity; each interval counts for the first of its activities."""
    spent = dict.fromkeys(("compute", "hidden", "transfer", "waiting"), 0)
    for took, under_way in _moments(parts):
        if "compute" in under_way:
            spent["hidden" if "transfer" in under_way else "compute"] += took
        elif under_way:
            spent["transfer" if "transfer" in under_way else "waiting"] += took
    return spent


def _of_actors(run: RunDirectory) -> dict[int, dict[str, int]]:
    nodes = _nodes(run)
    return {
        actor: _spent(_parts(node for node in nodes if node["actor"] == actor))
        for actor in {node["actor"] for node in nodes}
    }


def test_the_overview_splits_the_average_ranks_time_as_its_nodes_do(run: RunDirectory, cells: Cells) -> None:
    nodes, counts = _nodes(run), run.rank_counts().tolist()
    makespan = max(node["end_ns"] for node in nodes)
    spent = _of_actors(run)
    whole = makespan * sum(counts)
    names = {"compute": "compute", "hidden": "compute, hiding communication"}
    names |= {"transfer": "exposed communication", "waiting": "waiting for other ranks"}
    shown = {entry.rpartition(" ")[0].rpartition(" ")[0]: entry for entry in cells.entries["headline"]}
    for figure, name in names.items():
        sums = sum(counts[actor] * times[figure] for actor, times in spent.items())
        if sums:
            assert shown[name] == f"{name} {share(sums, whole)}"
        else:
            assert name not in shown
    assert cells.tiles["ranks"].split()[0] == f"{sum(counts):,}"
    assert cells.tiles["nodes"].split()[0] == f"{sum(counts[node['actor']] for node in nodes):,}"
    messages = run.table("messages").to_pylist()
    assert cells.tiles["messages"].split()[0] == f"{sum(counts[message['actor']] for message in messages):,}"


def test_every_rank_has_the_times_of_its_nodes(run: RunDirectory, cells: Cells) -> None:
    nodes = _nodes(run)
    makespan = max(node["end_ns"] for node in nodes)
    expected = defaultdict(set)
    for actor, spent in _of_actors(run).items():
        finish = max(node["end_ns"] for node in nodes if node["actor"] == actor)
        figures = (spent["compute"] + spent["hidden"], spent["transfer"], spent["waiting"])
        key = (format_ns(finish), *(f"{format_ns(ns)} {share(ns, makespan)}" for ns in figures))
        expected[key] |= set(_ranks(run.actors()["ranks"][actor].as_py()))
    shown = defaultdict(set)
    for ranks, finish, _, *figures, _ in cells.rows["ranks"][1:]:
        shown[(finish, *figures)] |= set(_ranks(ranks))
    assert shown == expected


def _ranks(text: str) -> Iterable[int]:
    for piece in text.split(","):
        first, _, last = piece.partition("-")
        yield from range(int(first), int(last or first) + 1)


def test_operations_add_up_the_nodes_of_their_names(run: RunDirectory, cells: Cells) -> None:
    counts = run.rank_counts().tolist()
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for node in _nodes(run):
        sums_of_name = sums[node["kind"].replace("_", " "), re.sub(r"\d+", "#", node["name"])]
        took = node["end_ns"] - node["start_ns"] - (node["queued_ns"] or 0)
        size = max(node["bytes"] or 0, 0) if node["kind"] in MOVES else 0
        for at, amount in enumerate((1, took, size)):
            sums_of_name[at] += counts[node["actor"]] * amount
    expected = {
        key: (f"{count:,}", *map(format_ns, (total, round(total / count))), _size(size // count))
        for key, (count, total, size) in sums.items()
    }
    shown = cells.rows["operations"][1:]
    for kind, name, count, total, _, mean, each, _ in shown:
        assert (count, total, mean, each) == expected[kind, name]
    totals = sorted((total for _, total, _ in sums.values()), reverse=True)
    assert [row[3] for row in shown] == [format_ns(total) for total in totals[: len(shown)]]
    assert len(shown) >= min(len(sums), 12)


def _size(each: int) -> str:
    return format_bytes(each) if each else ""


def test_groups_are_exposed_while_they_move_bytes_and_no_kernel_runs(run: RunDirectory, cells: Cells) -> None:
    counts, makespan = run.rank_counts().tolist(), run.summary["makespan_ns"]
    active: dict[str, int] = defaultdict(int)
    exposed: dict[str, int] = defaultdict(int)
    for actor, count in enumerate(counts):
        own = [node for node in _nodes(run) if node["actor"] == actor]
        kernels = [node for node in own if node["kind"] == "compute"]
        for group in {node["group"] or "send/receive" for node in own if node["kind"] in MOVES}:
            moves = [n for n in own if n["kind"] in MOVES and (n["group"] or "send/receive") == group]
            for took, under_way in _moments(_parts([*kernels, *moves])):
                active[group] += count * took * ("transfer" in under_way)
                exposed[group] += count * took * ("transfer" in under_way and "compute" not in under_way)
    ranks = sum(counts)
    expected = {
        (
            format_ns(round(active[group] / ranks)),
            f"{format_ns(round(exposed[group] / ranks))} {share(exposed[group] / ranks, makespan)}",
        )
        for group in active
    }
    assert {(row[3], row[5]) for row in cells.rows["groups"][1:]} == expected


def test_a_bar_has_every_part_of_a_nanosecond_and_no_empty_one() -> None:
    drawn = bar([("a", "first", 1), ("b", "second", 0), ("c", "third", 3)], 4)
    assert re.findall(r'aria-label="([^"]*)"', drawn) == [f"first {share(1, 4)}, third {share(3, 4)}"]
    assert re.findall(r"width:([\d.]+)%", drawn) == ["25.000", "75.000"]
