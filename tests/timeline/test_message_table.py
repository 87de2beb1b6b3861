"""Messages and links: exact times on small machines, parts of a run, and tables that stay small."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import et_sim
from et_sim.api import run
from et_sim.cli import main
from et_sim.engine.state.traffic_tables import MOST_SLICES
from et_sim.execution import execute
from et_sim.run.options import RunOptions
from et_sim.run.result import Result
from et_sim.timeline import OutputFilter, write_run

SYSTEM: dict[str, Any] = {
    "scheduling-policy": "FIFO",
    "all-reduce-implementation": ["ring"],
    "local-mem-bw": 0,
    "endpoint-delay": 10,
}
GB = 50  # bytes per ns, and
LATENCY = 500
DETAIL = ("messages", "links")


def _machine(ranks: int, shape: str = "Ring", **system: Any) -> dict[str, Any]:
    network = {"topology": [shape], "npus_count": [ranks], "bandwidth": [f"{GB}GB/s"], "latency": [LATENCY]}
    return {"system": SYSTEM | system, "network": network}


def _rows(result: Result, name: str = "messages") -> list[dict[str, Any]]:
    return list(result.table(name).to_pylist())


def _exchange(*sizes: int, wait_us: int = 3) -> et_sim.Workload:
    """Rank 0 sends, all at once; rank 1 receives after a while."""
    here, there = et_sim.TraceBuilder(), et_sim.TraceBuilder()
    work = there.compute("work", micros=wait_us)
    for tag, size in enumerate(sizes):
        here.send(1, size, tag=tag, after=[])
        there.receive(0, size, tag=tag, after=[work])
    return et_sim.Workload.of([here.build(), there.build()])


def test_a_message_has_left_after_its_serialisation_and_arrived_after_the_latency() -> None:
    for model in ("analytical", "link"):
        [row] = _rows(et_sim.simulate(_exchange(5000), **_machine(2), model=model, detail=DETAIL))
        assert row == {
            "actor": 0,
            "node": 0,
            "kind": "send",
            "peer": 1,
            "chunk": None,
            "phase": None,
            "step": None,
            "dimension": 0,
            "bytes": 5000,
            "ready_ns": 0,
            "sent_ns": 0,
            "start_ns": 0,
            "left_ns": 5000 // GB,
            "arrived_ns": 5000 // GB + LATENCY,
            "link_wait_ns": 0 if model == "link" else None,
        }


def test_messages_for_one_link_wait_and_the_link_shows_the_time() -> None:
    traces = []
    for rank in range(4):
        build = et_sim.TraceBuilder()
        if rank < 3:
            build.send(3, 50_000)
        else:
            for source in range(3):
                build.receive(source, 50_000, after=[])
        traces.append(build.build())
    machine = _machine(4, "Switch")
    result = et_sim.simulate(et_sim.Workload.of(traces), **machine, model="link", detail=DETAIL)
    rows = _rows(result)
    assert [row["start_ns"] for row in rows] == [0, 0, 0]
    assert [row["left_ns"] for row in rows] == [1000, 1000, 1000]
    assert [row["link_wait_ns"] for row in rows] == [0, 1000, 2000]
    assert [row["arrived_ns"] for row in rows] == [3000, 4000, 5000]  # 500 ns to the switch, 500 from it
    links = _rows(result, "links")
    down = [row for row in links if row["actor"] == 3]
    assert {row["link"] for row in down} == {"from the switch"}
    assert sum(row["busy_ns"] for row in down) == 3000
    assert sum(row["bytes"] for row in down) == 150_000
    assert sum(row["wait_ns"] for row in links) == sum(row["wait_ns"] for row in down) == 3000
    assert max(row["longest_wait_ns"] for row in down) == 2000
    for row in down:  # 1500 to 2500: two wait; to 3500: one
        within = [max(min(row["end_ns"], end) - max(row["start_ns"], end - 1000), 0) for end in (2500, 3500)]
        assert row["wait_ns"] == 2 * within[0] + within[1]
        assert row["most_waiting"] == (2 if within[0] else 1 if within[1] else 0)


def test_with_rendezvous_a_request_goes_first_and_the_message_is_ready_before_it_is_sent() -> None:
    machine = _machine(2, **{"rendezvous-protocol": True})
    request, message = _rows(et_sim.simulate(_exchange(5000), **machine, detail=DETAIL))
    requested = 3000 + 8192 // GB + LATENCY
    assert (request["kind"], request["actor"], request["peer"], request["bytes"]) == ("request", 1, 0, 8192)
    assert (request["sent_ns"], request["arrived_ns"]) == (3000, requested)
    assert (message["kind"], message["ready_ns"], message["sent_ns"]) == ("send", 0, requested)
    assert message["arrived_ns"] == requested + 5000 // GB + LATENCY


@pytest.mark.parametrize("rendezvous", [False, True])
def test_steps_of_a_tree_are_identified_by_their_place(rendezvous: bool) -> None:
    build = et_sim.TraceBuilder()
    build.collective("all_reduce", 4096)
    machine = _machine(4, **{"rendezvous-protocol": rendezvous})
    machine["system"]["all-reduce-implementation"] = ["doubleBinaryTree"]
    workload = et_sim.Workload.of([build.build()] * 4)
    rows = _rows(et_sim.simulate(workload, **machine, detail=DETAIL))
    steps = [row for row in rows if row["kind"] == "collective"]
    assert {row["step"] for row in steps} == {0, 1, 2, 3}
    assert sum(row["step"] < 2 for row in steps) == sum(row["step"] >= 2 for row in steps)
    assert (len(rows) == 2 * len(steps)) if rendezvous else (len(rows) == len(steps))


def test_without_links_overlapping_messages_may_exceed_a_link() -> None:
    build = et_sim.TraceBuilder()
    for _ in range(3):
        build.collective("all_to_all", 400_000, after=[])
    machine = _machine(4, **{"preferred-dataset-splits": 4, "active-chunks-per-dimension": 4})
    machine["system"]["all-to-all-implementation"] = ["direct"]
    result = et_sim.simulate(et_sim.Workload.of([build.build()] * 4), **machine, detail=DETAIL)
    rows = _rows(result, "links")
    assert {row["link"] for row in rows} == {"all it sends"}
    assert sum(row["busy_ns"] for row in rows) == sum(r["left_ns"] - r["start_ns"] for r in _rows(result))
    assert max(row["busy_ns"] / (row["end_ns"] - row["start_ns"]) for row in rows) > 2
    assert all(row["wait_ns"] is row["longest_wait_ns"] is row["most_waiting"] is None for row in rows)


def _training(ranks: int = 4, layers: int = 6) -> et_sim.Workload:
    traces = []
    for rank in range(ranks):
        build = et_sim.TraceBuilder()
        for layer in range(layers):
            work = build.compute(f"layer {layer}", micros=2 + rank)
            build.collective("all_reduce", 40_000, after=[work])
        traces.append(build.build())
    return et_sim.Workload.of(traces)


@pytest.mark.parametrize("ranks", [(), (range(1, 4, 2),)])
@pytest.mark.parametrize("window", [None, (20_000, 60_000)])
@pytest.mark.parametrize("model", ["analytical", "link"])
def test_a_part_of_a_run_holds_the_rows_that_touch_it(
    model: str, ranks: tuple[range, ...], window: tuple[int, int] | None, tmp_path: Path
) -> None:
    from pyarrow import feather

    machine, output_filter = _machine(4) | {"model": model, "detail": DETAIL}, OutputFilter(ranks, window)
    whole = run(_training(), **machine)
    first, last = window or (0, 2**62)
    actors = {rank for span in ranks for rank in span} or set(range(4))
    part = execute(_training(), RunOptions(**machine), output_filter=output_filter)
    assert part.messages is not None
    assert whole.messages is not None
    write_run(part, tmp_path / "kept", output_filter=output_filter)
    write_run(whole, tmp_path / "cut", output_filter=output_filter)
    for name, begin, end in (("messages", "ready_ns", "arrived_ns"), ("links", "start_ns", "end_ns")):
        expected = [
            row
            for row in _rows(whole, name)
            if row["actor"] in actors and row[begin] < last and max(row[end], row[begin] + 1) > first
        ]
        assert 0 < len(expected) <= len(_rows(whole, name))
        for folder in ("kept", "cut"):
            assert feather.read_table(tmp_path / folder / f"{name}.arrow").to_pylist() == expected
        if name == "messages":  # the rest is not kept on the way either
            assert part.messages.count == len(expected)


@pytest.mark.deep
@pytest.mark.parametrize("micros", [1, 1000, 1_000_000, 60_000_000])
def test_links_take_no_more_space_in_a_longer_run(micros: int) -> None:
    traces = []
    for rank in range(4):
        build = et_sim.TraceBuilder()
        for number in range(200):
            work = build.compute("work", micros=micros + rank)
            build.collective("all_reduce", 40_000, after=[work], name=f"{number}")
        traces.append(build.build())
    result = et_sim.simulate(et_sim.Workload.of(traces), **_machine(4), model="link", detail="links")
    rows = _rows(result, "links")
    assert len(rows) <= 4 * MOST_SLICES
    widths = {row["end_ns"] - row["start_ns"] for row in rows if row["end_ns"] < result.makespan_ns}
    assert len(widths) == 1
    assert widths.pop().bit_count() == 1
    assert max(row["start_ns"] for row in rows) // MOST_SLICES < result.makespan_ns
    assert sum(row["messages"] for row in rows) == result.outcome.messages
    per_message = 40_000 // 4 // GB
    assert sum(row["busy_ns"] for row in rows) == result.outcome.messages * per_message


@pytest.mark.deep
def test_a_million_ranks_that_behave_alike_are_recorded_as_one(tmp_path: Path) -> None:
    build = et_sim.TraceBuilder()
    build.collective("all_reduce", 1 << 20)
    workload = et_sim.Workload((build.build(),), np.zeros(1 << 20, np.int32))
    machine = _machine(1024)
    machine["network"] = {
        key: value * 2 if isinstance(value, list) else value for key, value in machine["network"].items()
    }
    machine["system"] |= {"all-reduce-implementation": ["halvingDoubling"] * 2}
    result = et_sim.simulate(workload, **machine, detail=DETAIL)
    write_run(result, tmp_path / "run")
    assert len(_rows(result, "links")) <= 2 * MOST_SLICES
    assert len(_rows(result)) << 20 == result.outcome.messages
    assert sum(path.stat().st_size for path in (tmp_path / "run").iterdir()) < 1 << 20


SCRIPT = """
import hashlib, json, sys
from test_message_table import everything
print(json.dumps(everything()))
"""


def everything() -> list[Any]:
    """Return rows of runs that cover every path of a message through the engine."""
    values = []
    for model in ("analytical", "link"):
        for rendezvous in (False, True):
            for algorithm in ("ring", "direct", "halvingDoubling", "doubleBinaryTree"):
                machine = _machine(4, "FullyConnected", **{"rendezvous-protocol": rendezvous})
                machine["system"]["all-reduce-implementation"] = [algorithm]
                result = run(_training(layers=2), **machine, model=model, detail=DETAIL)
                values += [_rows(result), _rows(result, "links")]
            causal_events = run(_training(layers=2), **machine, model=model, detail="path").causal_events
            assert causal_events is not None
            values += [
                list(map(int, moment)) for block in causal_events.blocks() for moment in block.tolist()
            ]
            machine = _machine(2, **{"rendezvous-protocol": rendezvous})
            result = run(_exchange(5000, 700, 80_000), **machine, model=model, detail=DETAIL)
            values += [_rows(result), _rows(result, "links")]
    return values


@pytest.mark.deep
def test_interpreted_equals_compiled() -> None:
    folder = Path(__file__).parent
    paths = os.pathsep.join([str(folder), str(folder.parents[1]), os.environ.get("PYTHONPATH", "")])
    interpreted = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": paths},
    )
    assert json.loads(interpreted.stdout) == everything()


def test_equal_runs_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_run(run(_training(), **_machine(4), model="link", detail=DETAIL), tmp_path / name)
    for table in ("messages", "links"):
        first, two = ((tmp_path / name / f"{table}.arrow").read_bytes() for name in ("one", "two"))
        assert first == two


def test_unrecorded_details_have_no_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(run(_training(), **_machine(4), detail="links"), tmp_path / "run")
    assert (tmp_path / "run" / "links.arrow").exists()
    assert not (tmp_path / "run" / "messages.arrow").exists()
    assert main(["sql", str(tmp_path / "run"), "SELECT * FROM messages"]) == 2
    assert "simulate with --detail messages" in capsys.readouterr().err
