"""Views of ports in `et-sim inspect`: queues, incasts, pauses, and delays of messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from machines import ring
from runs_to_show import congested, run_written

import et_sim
from et_sim.cli import main
from et_sim.views import open_run
from et_sim.views.run.selection import Selection
from et_sim.views.summary.flows import flows_of
from et_sim.views.summary.queues import PauseSpread, incasts, pause_roots, queue_uses, spread

SENDERS = (0, 1, 2, 5)
VIEWS = ("queues", "pauses", "flows")


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return congested(tmp_path_factory.mktemp("ports") / "run")


def _json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["inspect", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_queues_stand_in_the_order_of_their_depth_which_is_that_of_the_ports(
    crowd: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = open_run(crowd)
    known = {row["link"]: row for row in run.table("ports").to_pylist()}
    ports = _json(capsys, str(crowd), "queues")["ports"]
    assert {port["link"] for port in ports[:2]} == {"leaf0->spine0", "leaf1->npu4"}
    depths = [port["deepest_bytes"] for port in ports]
    assert depths == sorted(depths, reverse=True)
    for port in ports:
        for name in ("deepest_bytes", "lost", "marked", "pauses"):
            assert port[name] == known[port["link"]][name]
        assert max(port["deepest_over_time"]) == port["deepest_bytes"]
    assert {port["link"] for port in ports} >= {name for name, row in known.items() if row["deepest_bytes"]}


def test_a_port_counts_packets_acknowledgements_and_pauses(crowd: Path) -> None:
    ports = {row["link"]: row for row in open_run(crowd).table("ports").to_pylist()}
    for link, senders in (("npu0->leaf0", 1), ("leaf0->spine0", 3), ("leaf1->npu4", len(SENDERS))):
        assert (ports[link]["packets"], ports[link]["bytes"]) == (200 * senders, 200 * senders * 1036)
        assert ports[link]["busy_ns"] == ports[link]["bytes"] * 8 // 100
    assert ports["npu4->leaf1"]["packets"] == 200 * len(SENDERS)
    paused = ports["npu0->leaf0"]["pauses"]
    assert ports["leaf0->npu0"]["packets"] == 200 + 2 * paused  # each pause has an end


def test_a_window_shows_the_queues_in_it(crowd: Path) -> None:
    run = open_run(crowd)
    end = run.summary["makespan_ns"]
    [whole, first, last] = (
        {use.link: use.deepest_bytes for use in queue_uses(run, Selection(window=window))}
        for window in (None, (0, end // 4), (end // 4, end))
    )
    for link, depth in whole.items():
        assert depth == max(first.get(link, 0), last.get(link, 0))
    assert first != last


def test_where_messages_meet_their_senders_are_named(crowd: Path) -> None:
    met = {incast.link: incast for incast in incasts(open_run(crowd))}
    assert met["leaf1->npu4"].ranks == "0-2,5"
    assert met["leaf1->npu4"].messages == len(SENDERS)
    assert met["leaf0->spine0"].ranks == "0-2"
    assert "npu0->leaf0" not in met


def test_pauses_lead_from_the_congested_queue_to_those_that_wait_for_it(crowd: Path) -> None:
    run = open_run(crowd)
    roots = pause_roots(run)
    assert roots
    every = [link for root in roots for link in spread(root)]
    pauses = run.table("pauses").to_pylist()
    assert sum(link.pauses for link in every) == len(pauses) > 0
    assert sum(link.paused_ns for link in every) == sum(row["end_ns"] - row["begin_ns"] for row in pauses)
    assert roots[0].link == "leaf1->npu4"
    ways = {_way(root, link) for root in roots for link in spread(root)}
    assert ("leaf1->npu4", "spine0->leaf1", "leaf0->spine0", "npu0->leaf0") in ways
    assert all(not root.pauses for root in roots)


def _way(root: PauseSpread, wanted: PauseSpread) -> tuple[str, ...]:
    """Return the links from a root to a port."""
    waiting: list[tuple[PauseSpread, tuple[str, ...]]] = [(root, (root.link,))]
    while waiting:
        link, way = waiting.pop()
        if link is wanted:
            return way
        waiting += [(child, (*way, child.link)) for child in link.caused.values()]
    raise AssertionError(wanted.link)


def test_messages_that_took_longest_come_first_and_can_be_those_of_some_ranks(crowd: Path) -> None:
    run = open_run(crowd)
    flows = flows_of(run)
    assert flows is not None
    taken = [flow["arrived_ns"] - flow["begin_ns"] for flow in flows.as_dicts()]
    assert taken == sorted(taken, reverse=True)
    mine = flows_of(run, Selection(ranks=(range(5, 6),)))
    assert mine is not None
    assert [flow["source"] for flow in mine.as_dicts()] == [5]
    assert all(flow["paused_ns"] > 0 for flow in flows.as_dicts() if flow["source"] < 3)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("columns", [60, 80, 120])
def test_views_of_ports_fit_the_terminal(
    crowd: Path,
    view: str,
    columns: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["inspect", str(crowd), view]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    assert any("leaf1->npu4" in line or "from" in line for line in lines)


def test_pauses_that_were_not_recorded_have_no_roots(tmp_path: Path) -> None:
    build = et_sim.TraceBuilder()
    build.compute("work", nanos=1)
    run = open_run(run_written(tmp_path / "run", et_sim.Workload.of([build.build()] * 2), ring(2, "50GB/s")))
    assert pause_roots(run) is None
