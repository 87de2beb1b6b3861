"""`et-convert scale --from --to`: axes grow, and every group equals that of a job with the new plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_scale import SYSTEM, meaning, switch
from training_jobs import transformer, with_experts

import et_sim
from converters.cli import main
from converters.editing.plans import read_change
from et_sim.basics.errors import UsageError
from et_sim.trace import (
    GroupRule,
    TraceBuilder,
    Workload,
    read_workload,
    write_manifest,
    write_workload,
)
from et_sim.trace.preflight import find_problems
from et_sim.workloads import Plan, make_training

RECORDINGS = Path(__file__).parent / "pytorch_traces"


pytestmark = pytest.mark.usefixtures("in_a_folder")


def scaled(named: str, old: str, new: str, *more: str) -> int:
    return main(["scale", named, "--from", old, "--to", new, "-o", "grown", *more])


def recorded(*, tensor: int = 2, data: int = 2, stages: int = 2, world: bool = True) -> None:
    """Write a job of two stages as recorded: members listed in metadata, numbers as names."""
    inner = tensor * data
    traces = []
    for rank in range(inner * stages):
        first, last = rank < inner, rank >= inner * (stages - 1)
        tensors = [rank // tensor * tensor + place for place in range(tensor)]
        replicas = [rank // inner * inner + rank % tensor + tensor * place for place in range(data)]
        ends = [rank % inner, rank % inner + inner * (stages - 1)]
        model = [npu for npu in range(inner * stages) if npu % inner // tensor == rank % inner // tensor]
        build = TraceBuilder()
        groups = {"0": [], f"{10 + tensors[0]}": tensors, f"{40 + replicas[0]}": replicas}
        build.process_groups(groups | {f"{70 + model[0]}": model, f"{90 + ends[0]}": ends})
        done: list[int] = []
        for step in range(2):
            done = done if first else [build.receive(rank - inner, 4096, after=done)]
            done = [build.compute(f"forward {step}", micros=20 + rank, after=done)]
            done = [build.collective("all_reduce", 1 << 16, f"{10 + tensors[0]}", after=done)]
            done = done if last else [build.send(rank + inner, 4096, after=done)]
        done = [build.collective("all_gather", 1 << 16, f"{40 + replicas[0]}", after=done)]
        if first or last:
            done = [build.collective("all_reduce", 256, f"{90 + ends[0]}", after=done)]
        done = [build.collective("all_reduce", 8, f"{70 + model[0]}", after=done)]
        if world:
            build.collective("all_reduce", 4, after=done)
        traces.append(build.build())
    write_workload(Workload.of(traces), "job")


def groups_and_peers(named: str) -> list[tuple[Any, ...]]:
    """Return for every rank the groups of its collectives, with bytes, and the peers of its messages."""
    return [
        tuple(
            (name, size, peer, group) for name, _, size, peer, group, _ in nodes if not name.startswith("fo")
        )
        for nodes in meaning(named)
    ]


@pytest.mark.parametrize("new", ["dp=8", "tp=2,pp=2,dp=8", "dp=8,tp=2"])
def test_a_recorded_job_gets_the_groups_and_peers_of_the_bigger_plan(new: str) -> None:
    recorded()
    assert scaled("job", "tp=2,pp=2,dp=2", new) == 0
    result = groups_and_peers("grown.workload.json")
    assert len(result) == 32
    for rank, nodes in enumerate(result):
        stage, replica, tensor = rank // 16, rank % 16 // 2, rank % 2
        tensors = (rank - tensor, rank - tensor + 1)
        replicas = tuple(stage * 16 + tensor + 2 * place for place in range(8))
        model = tuple(16 * s + 2 * replica + t for s in range(2) for t in range(2))
        ends = (rank % 16, rank % 16 + 16)
        peer = (("receive", 4096, rank - 16, "") if stage else ("send", 4096, rank + 16, ""),)
        reduced = (("all_reduce", 1 << 16, None, tensors),)
        step = peer + reduced if stage else reduced + peer
        rest = (
            ("all_gather", (1 << 16) // 4, None, replicas),
            ("all_reduce", 256, None, ends),
            ("all_reduce", 8, None, model),
            ("all_reduce", 4, None, ""),
        )
        assert tuple(node for node in nodes if "process_group" not in node[0]) == step * 2 + rest
    rules = read_workload("grown.workload.json").group_rules
    assert rules == {
        "tp": GroupRule(2),
        "dp": GroupRule(8, 2),
        "tp-pp": GroupRule((2, 2), (1, 16)),
        "pp": GroupRule(2, 16),
    }


def test_first_and_last_stage_of_four_stay_first_and_last() -> None:
    recorded(stages=4)
    assert scaled("job", "tp=2,dp=2,pp=4", "dp=6") == 0
    grown = read_workload("grown.workload.json")
    assert grown.group_rules["pp"] == GroupRule(2, 36, every=48)
    assert find_problems(grown) == []


@pytest.mark.deep
@pytest.mark.usefixtures("warm_engine")
@pytest.mark.parametrize("new", ["dp=6", "tp=4,dp=4"])
def test_scaled_workloads_complete_and_are_equal_unfolded(new: str) -> None:
    recorded()
    assert scaled("job", "tp=2,pp=2,dp=2", new) == 0
    grown = read_workload("grown.workload.json")
    assert find_problems(grown) == []
    machine = {"system": SYSTEM, "network": switch(grown.ranks)}
    folded = et_sim.simulate(grown, **machine)
    assert folded.finish_ns.tolist() == et_sim.simulate(grown, fold=False, **machine).finish_ns.tolist()
    assert scaled("job", "tp=2,pp=2,dp=2", new, "--expand") == 0
    files = et_sim.simulate("grown", groups="grown.groups.json", **machine)
    assert files.finish_ns.tolist() == folded.finish_ns.tolist()


sizes = st.integers(1, 2)


@pytest.mark.deep
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=12)
@given(sizes, sizes, st.sampled_from([1, 2, 4]), sizes, st.integers(2, 3), st.data())
def test_a_job_with_more_replicas_is_the_job_that_would_be_made_so(
    tp: int, cp: int, pp: int, dp: int, factor: int, data: st.DataObject
) -> None:
    """Scale in every order; replicas without a partner exchange no data."""
    order = data.draw(st.permutations(["tp", "cp", "dp", "pp"]).map("-".join))
    the_same_job(tp, cp, pp, 2 * dp, factor, order)


@pytest.mark.deep
def test_replicas_grow_between_tensor_and_stages_and_around_context() -> None:
    the_same_job(2, 1, 2, 2, 3, "tp-cp-ep-dp-pp")
    the_same_job(1, 2, 2, 2, 2, "pp-cp-dp")


def the_same_job(tp: int, cp: int, pp: int, dp: int, factor: int, order: str) -> None:
    plan = {"tensor": tp, "context": cp, "pipeline": pp, "order": order, "micro_batches": 2}
    write_workload(transformer(data=dp, **plan), "small")
    write_manifest(transformer(data=dp * factor, **plan), "large.workload.json")
    old = f"tp={tp},cp={cp},pp={pp},dp={dp}"
    listed = ["--groups", "small.groups.json"] if Path("small.groups.json").exists() else []
    assert scaled("small", old, f"dp={dp * factor}", "--order", order, *listed) == 0
    assert meaning("grown.workload.json") == meaning("large.workload.json")
    for path in Path().glob("small*"):
        path.unlink()


def test_experts_keep_their_ranks_while_replicas_grow() -> None:
    plan = {"tensor": 2, "pipeline": 2, "expert": 4, "micro_batches": 1, "sequence_parallel": True}
    small = make_training(with_experts(), Plan(data=4, **plan))
    large = make_training(with_experts(), Plan(data=8, **plan))
    write_workload(small, "small")
    write_manifest(large, "large.workload.json")
    call = ("small", "tp=2,dp=4,pp=2,ep=4,etp=1", "dp=8", "--groups", "small.groups.json")
    assert scaled(*call) == 0
    assert meaning("grown.workload.json") == meaning("large.workload.json")
    assert {"ep", "edp"} <= set(read_workload("grown.workload.json").group_rules)


def test_collectives_of_all_ranks_keep_their_members_if_an_axis_of_size_one_grows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    build = TraceBuilder()
    build.collective("all_reduce", 64)
    write_workload(Workload.of([build.build()] * 4), "four")
    assert scaled("four", "tp=4", "dp=3") == 0
    assert read_workload("grown.workload.json").group_rules == {"tp": GroupRule(4)}
    printed = capsys.readouterr().out
    assert "note: dp had size 1, so the input has no communication along it" in printed
    assert "note: no collective spans the replicas: they are independent jobs" in printed
    assert scaled("four", "dp=4", "dp=12") == 0
    assert read_workload("grown.workload.json").group_rules == {}


@pytest.mark.deep
@pytest.mark.usefixtures("warm_engine")
def test_a_recording_of_pytorch_grows() -> None:
    """Grow collectives of all ranks, and messages between neighbours."""
    assert main(["pytorch", str(RECORDINGS / "gloo_mixed_4r"), "-o", "real"]) == 0
    assert scaled("real", "tp=2,dp=2", "dp=6") == 0
    grown = read_workload("grown.workload.json")
    assert (grown.ranks, len(grown.templates)) == (12, 4)
    assert find_problems(grown) == []
    more = {f"{kind}-implementation": ["ring"] for kind in ("all-to-all", "reduce-scatter")}
    assert et_sim.simulate(grown, system=SYSTEM | more, network=switch(12)).makespan_ns > 0
    assert scaled("real", "tp=2,dp=2", "tp=4") == 2  # its messages are along tensor


@pytest.mark.parametrize(
    ("old", "new", "more", "sentence"),
    [
        ("tp=2,pp=2", "dp=8", [], "--from tp=2,pp=2 are 4 ranks, and there are 8"),
        (
            "tp=2,pp=2,dp=2",
            "dp=5",
            [],
            "dp 5, which is no multiple of 2 in --from (give a multiple, such as 4",
        ),
        ("tp=2,pp=2,dp=2", "dp=1", [], "dp 1, which is no multiple of 2"),
        ("tp=2,pp=2,dp=2", "pp=4", [], "stages hold other layers and work in another order"),
        ("tp=2,pp=2,dp=2", "ep=2", [], "experts would be spread otherwise"),
        ("tp=2,pp=2,dp=2,ep=2,etp=1", "tp=4", [], "(let dp grow: with experts, nothing else can)"),
        ("tp=2,pp=2,dp=2,ep=2", "dp=4", [], "is one of dp or of ep"),
        ("tp=2,pp=2,dp=2,ep=3", "dp=4", [], "experts over 2 x 3 ranks, which do not divide the 4"),
        ("tp=2,pp=2,dp=2", "dp=4", ["--order", "tp-pp-dp"], "another member of group dp"),
        ("tp=8", "tp=16", [], "does not lie along axes of the plan tp 8"),
        ("tp=2,pp=2,dp=2", "dp=4", ["--order", "tp-tp"], "--order is 'tp-tp'"),
        ("tp=2,pp=2,dp=2", "dp=4", ["--replicas", "2"], "cannot be combined with --group"),
        ("tp=2,pp=2,dp=2", "dp=many", [], "--to has 'dp=many' (give a number from 1 up"),
        ("tp=2,pp=2,dp=2", "", [], "--to is ''"),
        ("tp=2,pp=2,dp=2", "dq=4", [], "--to has no axis 'dq'"),
        ("tp=2,tp=2,dp=2", "dp=4", [], "--from has tp twice"),
        ("tp=2,dp=4,etp=1", "dp=4", [], "--from has etp without ep"),
        ("tp=2,pp=2,dp=2", "dp=99999998", [], "ranks (at most"),
    ],
)
def test_a_plan_that_cannot_be_followed_is_refused(
    old: str, new: str, more: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded()
    assert scaled("job", old, new, *more) == 2
    assert sentence in capsys.readouterr().err
    assert list(Path().glob("grown*")) == []


def test_experts_outside_replicas_are_refused() -> None:
    with pytest.raises(UsageError, match="experts and replicas would grow in different places"):
        read_change("tp=2,dp=4,ep=2,etp=1", "dp=8", "tp-cp-dp-ep-pp")


def test_the_report_as_json_counts_the_new_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    recorded()
    assert scaled("job", "tp=2,pp=2,dp=2", "dp=64", "--json") == 0
    assert json.loads(capsys.readouterr().out)["ranks"] == 256
