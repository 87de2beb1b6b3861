"""The critical path on cases small enough to work out by hand, and refusals of bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from machines import FIFO_RING, network, sends
from pyarrow import feather

import et_sim
from et_sim.basics.errors import UsageError
from et_sim.cli import main
from et_sim.run.result import Result
from et_sim.timeline import write_run
from et_sim.timeline.output_filter import OutputFilter
from et_sim.views import open_run
from et_sim.views.critical.path import CriticalPath
from et_sim.views.critical.record import PathRecord
from et_sim.views.critical.sensitivity import Sensitivities, Sensitivity
from et_sim.views.critical.text import critical_path_data, critical_path_text

pytestmark = pytest.mark.usefixtures("warm_engine")

GIBPS = 1073741824 / 1e9  # bytes per ns of the unit that network files call GB/s


def _network(ranks: int, shape: str = "Ring", **more: Any) -> dict[str, Any]:
    return network([shape], [ranks]) | more


def _simulated(builders: list[et_sim.TraceBuilder], shape: str = "Ring", **more: Any) -> Result:
    machine = {"system": FIFO_RING, "network": _network(len(builders), shape), **more}
    workload = et_sim.Workload.of([builder.build() for builder in builders])
    return et_sim.simulate(workload, detail="path", **machine)


def _path(result: Result, folder: Path) -> CriticalPath:
    write_run(result, folder / "run")
    path = CriticalPath(PathRecord(open_run(folder / "run")))
    assert sum(path.by_cause().values()) == result.makespan_ns
    return path


def _sensitivities(path: CriticalPath) -> dict[str, Sensitivity]:
    return {sensitivity.parameter: sensitivity for sensitivity in Sensitivities(path).all()}


def test_a_ring_all_reduce_is_its_closed_form(tmp_path: Path) -> None:
    build = et_sim.TraceBuilder()
    build.collective("all_reduce", 1 << 20)
    path = _path(_simulated([build] * 4), tmp_path)
    message = (1 << 20) // 4
    steps = 2 * (4 - 1)
    flight = int(500 + message / (50 * GIBPS))
    assert path.by_cause() == {
        "latency": steps * 500,
        "serialisation": steps * (flight - 500),
        "endpoint": (steps + 1) * 10,
        "reduction": 3 * 3 * int(message / 50),
    }
    [hop] = path.hops()
    assert (hop.kind, hop.group, hop.messages, hop.after) == ("all_reduce", "all", steps, "nothing")
    assert path.by_group() == [("all", path.makespan_ns)]
    sensitivities = _sensitivities(path)
    assert sensitivities["latency of dimension 0"].better.slope_ns == steps * 500
    assert sensitivities["latency of dimension 0"].worse.one_percent_ns == pytest.approx(steps * 5)
    assert sensitivities["bandwidth of dimension 0"].better.one_percent_ns == pytest.approx(
        -steps * (flight - 500) * (1 - 1 / 1.01)
    )
    assert sensitivities["endpoint delay"].better.same_path_until == 0


def test_a_slow_rank_is_the_path_and_the_fast_one_has_the_difference_as_slack(tmp_path: Path) -> None:
    slow, fast = et_sim.TraceBuilder(), et_sim.TraceBuilder()
    for build, name, micros in ((slow, "slow work", 30), (fast, "fast work", 10)):
        work = build.compute(name, micros=micros)
        build.collective("all_reduce", 1 << 20, after=[work])
    path = _path(_simulated([slow, fast]), tmp_path)
    assert [hop.name for hop in path.hops()] == ["slow work", "all_reduce"]
    rows, slack = path.record.slack
    names = path.record.nodes.name
    by_name = {names.texts[names.codes[row]]: own for row, own in zip(rows, slack.tolist(), strict=True)}
    assert by_name["slow work"] == 0
    assert by_name["fast work"] == 20_000
    sensitivities = _sensitivities(path)
    assert sensitivities["time of slow work"].better.same_path_until == pytest.approx(1 / 3, rel=1e-3)
    assert sensitivities["time of fast work"].worse.slope_ns == 0
    assert sensitivities["time of fast work"].worse.same_path_until == pytest.approx(3, rel=1e-3)


@pytest.mark.parametrize("more_ns", [0, 1000])
def test_a_node_may_be_late_by_its_slack_and_no_more(tmp_path: Path, more_ns: int) -> None:
    def traces(late_ns: int) -> list[et_sim.TraceBuilder]:
        slow, fast = et_sim.TraceBuilder(), et_sim.TraceBuilder()
        for build, nanos in ((slow, 30_000), (fast, 10_000 + late_ns)):
            first = build.compute("first", nanos=nanos)
            build.collective("all_reduce", 1 << 16, after=[first])
            build.compute("second", micros=40, after=[first])
        return [slow, fast]

    base = _simulated(traces(0))
    path = _path(base, tmp_path)
    rows, slack = path.record.slack
    nodes = path.record.nodes
    [own] = [
        s
        for row, s in zip(rows, slack.tolist(), strict=True)
        if nodes.actor[row] == 1 and nodes.node[row] == 0
    ]
    assert own > 0
    assert _simulated(traces(own + more_ns)).makespan_ns == base.makespan_ns + more_ns


@pytest.mark.parametrize("late", [1, 2, 3])
def test_the_second_half_of_a_direct_exchange_waits_for_the_last_message_of_the_first(
    late: int, tmp_path: Path
) -> None:
    def simulated(own_ns: int = 0) -> Result:
        builders = [et_sim.TraceBuilder() for _ in range(4)]
        for rank, build in enumerate(builders):
            work = build.compute("work", nanos=30_000 if rank == late else 1000 * rank + own_ns)
            build.collective("all_reduce", 1 << 16, after=[work])
        direct = FIFO_RING | {"all-reduce-implementation": ["direct"]}
        return _simulated(builders, "FullyConnected", system=direct)

    base = simulated()
    path = _path(base, tmp_path)
    nodes, (rows, slack) = path.record.nodes, path.record.slack
    own = {
        int(nodes.actor[row]): time
        for row, time in zip(rows, slack.tolist(), strict=True)
        if not nodes.node[row]
    }
    assert own[late] == 0
    least = min(time for rank, time in own.items() if rank != late)
    assert simulated(least).makespan_ns == base.makespan_ns
    assert simulated(least + 1000).makespan_ns == base.makespan_ns + 1000
    causes = path.by_cause()
    assert (causes["compute"], causes["latency"]) == (30_000, 2 * 500)


def test_where_paths_are_equally_long_better_and_worse_differ(tmp_path: Path) -> None:
    first, second = et_sim.TraceBuilder(), et_sim.TraceBuilder()
    first.compute("a", micros=10)
    second.compute("b", micros=10)
    sensitivities = _sensitivities(_path(_simulated([first, second]), tmp_path))
    for name in ("time of a", "time of b"):
        assert sensitivities[name].better.slope_ns == 0
        assert sensitivities[name].worse.slope_ns == 10_000


def test_a_message_that_waits_for_a_link_queues(tmp_path: Path) -> None:
    """Round a ring, from 0 by 1 to 2: the link from 1 to 2 still carries a larger message of 1's own."""
    builders = sends(4, [(0, 2, 1 << 20), (1, 2, 4 << 20)])
    path = _path(_simulated(builders, model="link"), tmp_path)
    small, large = (int(size / (50 * GIBPS)) for size in (1 << 20, 4 << 20))
    assert path.makespan_ns in (large + small + 500, large + small + 501)
    waited = large - small - 500
    causes = path.by_cause()
    assert causes["queueing"] == pytest.approx(waited, abs=1)
    assert causes["serialisation"] == pytest.approx(large - waited + small, abs=1)
    [single] = path.by_single_link()
    assert single["link"] == "dimension 0: rank 1 clockwise"
    of_hops = [hop.causes for hop in path.hops()]
    assert {cause: sum(of.get(cause, 0) for of in of_hops) for cause in causes} == causes


def test_changes_are_estimates_without_slack_if_messages_share_links(tmp_path: Path) -> None:
    """Send two messages into rank 2, which its link from the switch delays."""
    builders = sends(3, [(source, 2, 1 << 20) for source in (0, 1)])
    path = _path(_simulated(builders, "Switch", model="flow"), tmp_path)
    both = int((2 << 20) / (50 * GIBPS))
    assert path.makespan_ns == pytest.approx(both + 1000, abs=1)
    assert path.by_cause()["serialisation"] == both
    [single] = path.by_single_link()
    assert single["link"] == "dimension 0: rank 2 from the switch"
    text = critical_path_text(tmp_path / "run")
    assert "An estimate" in text
    assert "good until" not in text
    assert "least slack" not in text
    data = critical_path_data(tmp_path / "run")
    assert not data["sensitivities_are_exact"]
    assert data["slack_of_operations"] is data["slack_of_nodes"] is None
    changes = {
        sensitivity["parameter"]: sensitivity["worse"]["one_percent_ns"]
        for sensitivity in data["sensitivities"]
    }
    assert changes["bandwidth of dimension 0"] == pytest.approx(both / 99)


def test_on_the_flow_model_each_message_of_the_path_has_the_link_that_held_it_up(tmp_path: Path) -> None:
    """Send from ranks 0 and 1 over one spine to 2, which then answers 0: the way back is free."""
    size = 1_000_000
    builders = [et_sim.TraceBuilder() for _ in range(4)]
    for source in (0, 1):
        builders[source].send(2, size)
    came = [builders[2].receive(source, size) for source in (0, 1)]
    builders[2].send(0, size, after=came)
    builders[0].receive(2, size)
    shape = {"generator": "leaf-spine", "leaves": 2, "spines": 1, "npus-per-leaf": 2}
    graph = {**shape, "bandwidth": "50GB/s", "latency": "1us", "uplinks": {"bandwidth": "40GB/s"}}
    result = et_sim.simulate(
        et_sim.Workload.of([builder.build() for builder in builders]),
        system={"profile": "corrected", "endpoint-delay": 10},
        network={"graph": graph},
        model="flow",
        detail="path",
    )
    path = _path(result, tmp_path)
    there, back = path.by_message()
    assert (there["start_ns"], there["end_ns"]) == (0, 2 * size // 40)
    assert there["link"] in ("leaf0->spine0", "spine0->leaf1")
    assert back["link"] in ("leaf1->spine0", "spine0->leaf0")
    assert back["end_ns"] - back["start_ns"] == size // 40
    assert path.by_cause() == {"latency": 2 * 4000, "serialisation": 3 * size // 40}
    # Latencies are of links of several classes, so they are no single one's.
    assert [link["latency"] for link in path.by_link()] == [None] * len(path.by_link())
    assert "ns" not in critical_path_text(tmp_path / "run").split("Links on the path")[1].splitlines()[2][:20]
    text = critical_path_text(tmp_path / "run")
    assert "Messages on the path, and the link that set the rate of each last" in text
    assert critical_path_data(tmp_path / "run")["messages"] == [there, back]


def test_requests_to_a_shared_memory_queue(tmp_path: Path) -> None:
    build = et_sim.TraceBuilder()
    build.load(1 << 20)
    pool = {"memory-type": "MEMORY_POOL", "remote-mem-latency": 100, "remote-mem-bw": 512}
    path = _path(_simulated([build] * 4, memory=pool), tmp_path)
    assert path.by_cause() == {"memory": 2148, "queueing": 3 * 2148}
    [change] = [
        sensitivity for name, sensitivity in _sensitivities(path).items() if name == "time of remote memory"
    ]
    assert change.worse.slope_ns == 4 * 2148


def test_a_late_start_is_idle_time(tmp_path: Path) -> None:
    build = et_sim.TraceBuilder()
    build.compute("work", micros=1)
    late = {**FIFO_RING, "stragglers": [{"ranks": "1", "delay": 500}]}
    path = _path(_simulated([build] * 2, system=late), tmp_path)
    assert path.by_cause() == {"compute": 1000, "idle": 500}
    assert [hop.name for hop in path.hops()] == ["late start", "work"]


def test_kernels_become_bound_by_the_other_side_of_the_roofline(tmp_path: Path) -> None:
    """Compute bound at twice the time of its memory traffic: twice the peak is all that helps."""
    build = et_sim.TraceBuilder()
    build.compute("kernel", num_ops=2_000_000, tensor_bytes=1_000_000)
    system = {**FIFO_RING, "roofline-enabled": 1, "peak-perf": 1, "local-mem-bw": 1000}
    sensitivities = _sensitivities(_path(_simulated([build] * 2, system=system), tmp_path))
    assert sensitivities["peak compute"].better.slope_ns == 2000
    assert sensitivities["peak compute"].better.same_path_until == pytest.approx(2, rel=0.01)
    assert sensitivities["local memory bandwidth"].better.slope_ns == 0
    assert sensitivities["local memory bandwidth"].worse.same_path_until == pytest.approx(0.5, rel=0.01)


def test_folded_or_not_the_path_is_made_of_the_same(tmp_path: Path) -> None:
    build = et_sim.TraceBuilder()
    for layer in range(3):
        work = build.compute(f"layer {layer}", micros=5)
        build.collective("all_reduce", 1 << 18, after=[work])
    paths = []
    for fold in (True, False):
        result = _simulated([build] * 8, fold=fold)
        paths.append(_path(result, tmp_path / str(fold)))
        assert result.outcome.plan.is_folded == fold
    folded, plain = paths
    assert folded.by_cause() == plain.by_cause()
    assert folded.by_operation() == plain.by_operation()
    assert [hop.name for hop in folded.hops()] == [hop.name for hop in plain.hops()]


def test_a_stalled_run_has_a_path_to_where_it_stopped(tmp_path: Path) -> None:
    build = et_sim.TraceBuilder()
    work = build.compute("work", micros=3)
    build.receive(0, 64, after=[work])
    other = et_sim.TraceBuilder()
    other.compute("other", micros=1)
    workload = et_sim.Workload.of([other.build(), build.build()])
    result = et_sim.api.run(workload, system=FIFO_RING, network=_network(2), detail="path")
    write_run(result, tmp_path / "run")
    assert "the run did not complete" in critical_path_text(tmp_path / "run")
    data = critical_path_data(tmp_path / "run")
    assert data["causes"] == {"compute": 3000}
    assert data["sensitivities"] is None


def test_a_run_of_nothing_has_an_empty_path(tmp_path: Path) -> None:
    build = et_sim.TraceBuilder()
    build.compute("nothing", nanos=0)
    path = _path(_simulated([build] * 2), tmp_path)
    assert path.by_cause() == {}
    assert path.hops() == []
    assert critical_path_text(tmp_path / "run").startswith("critical path: 0 ns")


def test_a_run_that_holds_only_some_nodes_has_no_critical_path(tmp_path: Path) -> None:
    build = et_sim.TraceBuilder()
    build.collective("all_reduce", 1 << 20)
    write_run(
        _simulated([build] * 4, fold=False), tmp_path / "run", output_filter=OutputFilter(ranks=(range(1),))
    )
    with pytest.raises(UsageError, match="holds only the nodes of rank 0") as error:
        critical_path_text(tmp_path / "run")
    assert "without --ranks and --window" in str(error.value)
    main(["report", str(tmp_path / "run"), "--html", str(tmp_path / "page.html")])
    assert "a critical path leads through all of them" in (tmp_path / "page.html").read_text()


def test_a_run_without_the_record_gives_a_remedy(tmp_path: Path) -> None:
    build = et_sim.TraceBuilder()
    build.compute("work", micros=1)
    workload = et_sim.Workload.of([build.build()] * 2)
    write_run(et_sim.simulate(workload, system=FIFO_RING, network=_network(2)), tmp_path / "run")
    with pytest.raises(UsageError, match="did not record") as error:
        critical_path_text(tmp_path / "run")
    assert "--detail path" in str(error.value.remedy)


@pytest.mark.parametrize(
    ("column", "value", "complaint"),
    [
        ("critical_parent", 10_000, "names row 10000 of path"),
        ("end_ns", 7, "do not follow"),
        ("other_parent", 3, "do not follow"),
    ],
)
def test_a_damaged_record_is_refused(tmp_path: Path, column: str, value: int, complaint: str) -> None:
    build = et_sim.TraceBuilder()
    build.collective("all_reduce", 1 << 16)
    _path(_simulated([build] * 2), tmp_path)
    file = tmp_path / "run" / "path.arrow"
    table = feather.read_table(file)
    values = table[column].to_pylist()
    values[2] = value
    at = table.schema.get_field_index(column)
    table = table.set_column(at, table.schema.field(at), pa.array(values, table.schema.field(at).type))
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as out:
        out.write_table(table)
    with pytest.raises(UsageError, match=complaint):
        critical_path_text(tmp_path / "run")


@pytest.mark.deep
def test_the_text_fits_eighty_columns_and_json_has_the_same_content(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    builders = []
    for rank in range(4):
        build = et_sim.TraceBuilder()
        for layer in range(15):
            work = build.compute(f"a computation with a long name {layer:c>3}", micros=5 + rank)
            build.collective("all_reduce", 1 << 18, name=f"sum {layer}", after=[work])
        builders.append(build)
    _path(_simulated(builders), tmp_path)
    run = str(tmp_path / "run")
    assert main(["inspect", run, "critical-path"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines) <= 80
    assert any(line.startswith("… and ") for line in lines)
    assert main(["inspect", run, "critical-path", "--top", "2", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert sum(data["causes"].values()) == data["makespan_ns"]
    assert len(data["operations"]) == len(data["slack_of_nodes"]) == 2
    assert main(["inspect", run, "critical-path", "--window", "0:1us"]) == 2
    assert "the view critical-path does not support --window" in capsys.readouterr().err


def test_an_unknown_detail_is_refused_with_a_suggestion() -> None:
    build = et_sim.TraceBuilder()
    build.compute("work", micros=1)
    with pytest.raises(UsageError, match="detail 'paths' is not known"):
        et_sim.simulate(
            et_sim.Workload.of([build.build()] * 2), system=FIFO_RING, network=_network(2), detail="paths"
        )


@pytest.mark.parametrize("layers", [2, 40])
def test_the_number_of_readings_of_the_record_does_not_depend_on_hops(
    layers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = et_sim.TraceBuilder()
    last: list[int] = []
    for _ in range(layers):
        last = [build.compute("work", micros=1, after=last)]
        last = [build.collective("all_reduce", 1 << 10, after=last)]
    path = _path(_simulated([build] * 2), tmp_path)
    calls: list[Any] = []
    is_kind = CriticalPath.is_kind
    monkeypatch.setattr(CriticalPath, "is_kind", lambda *args: calls.append(args) or is_kind(*args))
    assert len(path.hops()) == 2 * layers
    assert len(calls) == 1
    assert path.hops() == path.hops()
    assert len(calls) == 1
