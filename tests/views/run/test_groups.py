"""Groups are those of ranks, for any choice of simulated ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from counting import counted_calls
from machines import network
from runs_to_show import run_written

import et_sim
from et_sim.basics.errors import UsageError
from et_sim.cli import main
from et_sim.timeline import write_run
from et_sim.trace.group_rule import GroupRule
from et_sim.views import open_run
from et_sim.views.critical.path import CriticalPath
from et_sim.views.critical.record import PathRecord
from et_sim.views.run.selection import selection
from et_sim.views.sql import Database
from et_sim.views.summary.groups import group_totals

pytestmark = pytest.mark.usefixtures("warm_engine")

SYSTEM = {
    "profile": "corrected",
    "all-reduce-implementation": ["ring"],
    "all-gather-implementation": ["ring"],
}


def _trace(group: str, described: dict[str, list[int]] | None = None) -> et_sim.Trace:
    build = et_sim.TraceBuilder()
    if described:
        build.process_groups(described)
    work = build.compute("work", micros=3)
    build.collective("all_reduce", 1 << 16, group=group, after=[work])
    build.collective("all_gather", 1 << 10)
    return build.build()


def _written(traces: list[et_sim.Trace], folder: Path, **options: Any) -> Path:
    every = network(["FullyConnected"], [len(traces)])
    return run_written(folder, et_sim.Workload.of(traces), every, SYSTEM, **options)


def _two_groups(folder: Path, **options: Any) -> Path:
    """Group 1 of ranks 0-3 and group 2 of ranks 4-7, which behave alike."""
    groups = {"1": [0, 1, 2, 3], "2": [4, 5, 6, 7]}
    return _written([_trace("1")] * 4 + [_trace("2")] * 4, folder, groups=groups, **options)


def _figures(path: Path, ranks: str | None = None) -> dict[str, tuple[int, int]]:
    return {
        total.group: (total.ranks, total.count) for total in group_totals(open_run(path), selection(ranks))
    }


def test_groups_of_ranks_that_are_simulated_together_are_two(tmp_path: Path) -> None:
    folded = _two_groups(tmp_path / "folded")
    assert open_run(folded).summary["folded"]["actors"] < 8
    assert _figures(folded) == {"1": (4, 4), "2": (4, 4), "all": (8, 8)}
    assert _figures(folded, "6") == {"2": (1, 1), "all": (1, 1)}
    assert _figures(folded, "1,4-5") == {"1": (1, 1), "2": (2, 2), "all": (3, 3)}


def test_a_folded_run_is_identical_to_the_unfolded_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folded, alone = _two_groups(tmp_path / "folded"), _two_groups(tmp_path / "alone", fold=False)
    assert main(["compare", str(folded), str(alone)]) == 0
    assert "identical" in capsys.readouterr().out


def test_groups_that_traces_describe_differ_by_rank(tmp_path: Path) -> None:
    """Check a name that means one group to one rank, and another to the next."""
    halves = [[0, 1, 2, 3], [4, 5, 6, 7]]
    traces = [_trace("tp", {"tp": halves[rank // 4]}) for rank in range(8)]
    path = _written(traces, tmp_path / "run")
    assert _figures(path) == {"tp": (8, 8), "all": (8, 8)}
    rows = open_run(path).table("groups").to_pylist()
    members = {row["members"] for row in rows if row["name"] == "tp"}
    assert (members, {row["ranks"] for row in rows if row["name"] == "all"}) == ({"0-3", "4-7"}, {None})


def test_a_rule_lists_the_members_of_its_groups_briefly(tmp_path: Path) -> None:
    rules = {"row": GroupRule(2), "axes": GroupRule((2, 2), (1, 4)), "ends": GroupRule(2, 3, 4)}
    build = et_sim.TraceBuilder()
    for name in rules:
        build.collective("all_reduce", 64, group=name)
    other = et_sim.TraceBuilder()
    other.collective("all_reduce", 64, group="row")
    other.collective("all_reduce", 64, group="axes")
    of_rank = np.array([0, 1, 1, 0] * 2, np.int32)
    workload = et_sim.Workload((build.build(), other.build()), of_rank, group_rules=rules)
    run_written(tmp_path / "run", workload, network(["FullyConnected"], [8]), SYSTEM)
    with Database(open_run(tmp_path / "run")) as database:
        rows = database.connection.execute(
            'SELECT "group", members, size, stride, rule FROM rank_groups WHERE rank = 7 ORDER BY size, 1'
        ).fetchall()
        ends = database.connection.execute("SELECT rank FROM rank_groups WHERE \"group\" = 'ends' ORDER BY 1")
        assert [rank for (rank,) in ends.fetchall()] == [0, 3, 4, 7]
    assert rows == [
        ("ends", None, 2, None, '{"size": 2, "stride": 3, "every": 4}'),
        ("row", None, 2, 1, None),
        ("axes", None, 4, None, '{"size": [2, 2], "stride": [1, 4]}'),
    ]


def test_pictures_name_the_group_of_the_rank_that_they_show(tmp_path: Path) -> None:
    path = _two_groups(tmp_path / "run")
    target = tmp_path / "trace.json"
    main(["export", str(path), "--chrome", str(target), "--ranks", "0,6"])
    events = json.loads(target.read_text())["traceEvents"]
    groups = {
        (event["pid"], event["args"]["group"]) for event in events if event.get("args", {}).get("group")
    }
    assert groups == {(0, "1"), (0, "all"), (6, "2"), (6, "all")}


def test_the_critical_path_leaves_open_which_of_the_groups_of_an_actor_it_is_in(tmp_path: Path) -> None:
    path = _two_groups(tmp_path / "run", detail="path")
    assert dict(CriticalPath(PathRecord(open_run(path))).by_group()).keys() == {"1 or 2"}


def test_a_group_that_is_named_all_is_not_that_of_all_ranks(tmp_path: Path) -> None:
    traces = [_trace("all")] * 2 + [_trace("rest")] * 2
    run = open_run(_written(traces, tmp_path / "run", groups={"all": [0, 1], "rest": [2, 3]}))
    ranks_of = {(total.group, total.kind): total.ranks for total in group_totals(run)}
    assert ranks_of == {
        ('"all"', "all_reduce"): 2,
        ("rest", "all_reduce"): 2,
        ("all", "all_gather"): 4,
    }


@pytest.mark.deep
def test_a_million_ranks_have_a_few_rows_and_are_queried_at_once(tmp_path: Path) -> None:
    ranks = 1 << 20
    workload = et_sim.Workload(
        (_trace("tp"),), np.zeros(ranks, np.int32), group_rules={"tp": GroupRule(8), "dp": GroupRule(64, 8)}
    )
    shape = {"topology": ["FullyConnected", "Switch", "Switch"], "npus_count": [8, 1024, 128]}
    network = shape | {"bandwidth": [50, 50, 50], "latency": [500, 500, 500]}
    system = SYSTEM | {key: ["direct"] * 3 for key in SYSTEM if key.endswith("implementation")}
    # the test is about groups, not about a million NPUs' ports
    system["corrections"] = {"port-bandwidth": False}
    write_run(et_sim.simulate(workload, system=system, network=network), tmp_path / "run")
    run = open_run(tmp_path / "run")
    assert run.table("groups").num_rows == 2
    figures, calls = counted_calls(lambda: _figures(run.path, "5-1000004"))
    assert figures == {"tp": (1_000_000, 1_000_000), "all": (1_000_000, 1_000_000)}
    assert calls < 100_000


def test_groups_that_the_timeline_names_must_be_there(tmp_path: Path) -> None:
    path = _two_groups(tmp_path / "run")
    table = open_run(path).table("groups").slice(2)
    with pa.OSFile(str(path / "groups.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as out:
        out.write_table(table)
    with pytest.raises(UsageError, match="lacks groups that the timeline names"):
        group_totals(open_run(path))


def test_peers_of_ranks_that_are_simulated_together_are_their_own(tmp_path: Path) -> None:
    """Write files with peers by number: one trace for each rank of a ring, and one actor for all."""
    traces = []
    for rank in range(8):
        build = et_sim.TraceBuilder()
        build.send((rank + 1) % 8, 64)
        build.receive((rank - 1) % 8, 64)
        traces.append(build.build())
    path = _written(traces, tmp_path / "run")
    run = open_run(path)
    assert [(row["ranks"], row["distance"]) for row in run.table("peers").to_pylist()] == [
        (None, 1),
        (None, 7),
    ]
    with Database(run) as database:
        rows = database.connection.execute("SELECT rank, peer FROM rank_timeline ORDER BY ALL").fetchall()
    assert rows == [(rank, peer) for rank in range(8) for peer in sorted(((rank - 1) % 8, (rank + 1) % 8))]
