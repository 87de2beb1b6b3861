"""`et-convert scale`: many ranks run the programs of few, by the rules of the documentation."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from expanded_workloads import expanded
from hypothesis import given
from hypothesis import strategies as st
from training_jobs import transformer

import et_sim
from converters.cli import main
from converters.editing.growth import Growth
from et_sim.basics.errors import UsageError
from et_sim.trace import (
    GroupRule,
    Trace,
    TraceBuilder,
    Workload,
    read_workload,
    write_manifest,
    write_workload,
)
from et_sim.trace.columns import NodeKind
from et_sim.trace.preflight import find_problems

SYSTEM = {
    "scheduling-policy": "FIFO",
    "all-reduce-implementation": ["ring"],
    "all-gather-implementation": ["ring"],
    "local-mem-bw": 50,
}


def switch(ranks: int) -> dict[str, Any]:
    return {"topology": ["Switch"], "npus_count": [ranks], "bandwidth": [50], "latency": [500]}


pytestmark = pytest.mark.usefixtures("in_a_folder")


def job(data: int, *, tensor: int = 2, pipeline: int = 2) -> Workload:
    return transformer(tensor=tensor, pipeline=pipeline, data=data)


def meaning(named: str, groups: str | None = None) -> list[list[tuple[Any, ...]]]:
    """Return the program of every rank, with ranks as peers and members of groups, independent of its
    form.
    """
    whole = expanded(read_workload(named))
    members = {str(number): tuple(of) for number, of in whole.groups.items()}
    if groups:
        content = json.loads(Path(groups).read_text(encoding="utf-8"))
        members |= {name: tuple(of) for name, of in content.items()}
    results = []
    for rank in range(whole.workload.ranks):
        trace = whole.workload.trace(rank)
        nodes: list[tuple[Any, ...]] = []
        for row in range(len(trace)):
            peer = {NodeKind.SEND: trace.comm_dst, NodeKind.RECV: trace.comm_src}.get(trace.kind[row])
            group = trace.group_names[int(trace.group[row])]
            nodes.append(
                (
                    trace.node_name(row),
                    int(trace.duration_us[row]),
                    int(trace.comm_bytes[row]),
                    None if peer is None else int(peer[row]),
                    members.get(group, group),
                    tuple(trace.parents(row).tolist()),
                )
            )
        results.append(nodes)
    return results


@pytest.mark.parametrize(
    ("tensor", "pipeline", "old", "new"),
    [(2, 2, 2, 8), (4, 1, 2, 6), (1, 4, 2, 4), (2, 4, 3, 9), (1, 1, 2, 16)],
)
def test_a_bigger_data_parallel_group_is_the_job_that_would_be_made_so(
    tensor: int, pipeline: int, old: int, new: int
) -> None:
    for name, data in (("small", old), ("large", new)):
        whole = job(data, tensor=tensor, pipeline=pipeline)
        write_manifest(whole, f"{name}.workload.json")
    assert main(["scale", "small.workload.json", "--group", f"data={new}", "-o", "grown"]) == 0
    assert meaning("grown.workload.json") == meaning("large.workload.json")


@pytest.mark.deep
def test_files_with_listed_groups_become_a_few_templates(capsys: pytest.CaptureFixture[str]) -> None:
    write_workload(job(2), "small")
    write_manifest(job(8), "large.workload.json")
    groups = json.loads(Path("small.groups.json").read_text(encoding="utf-8"))
    data = next(name for name, members in groups.items() if members == [0, 2])
    call = ["scale", "small", "--groups", "small.groups.json", "--group", f"{data}=8", "-o", "grown"]
    assert main(call) == 0
    printed = capsys.readouterr().out
    assert "note: 8 ranks became 32, with 2 templates" in printed
    assert f"note: group like-{data}: 2 members became 8, 2 apart" in printed
    assert meaning("grown.workload.json") == meaning("large.workload.json")
    assert main([*call, "--expand"]) == 0
    assert meaning("grown", "grown.groups.json") == meaning("large.workload.json")


def test_many_ranks_take_little_room() -> None:
    write_workload(job(2), "small")
    groups = json.loads(Path("small.groups.json").read_text(encoding="utf-8"))
    data = next(name for name, members in groups.items() if members == [0, 2])
    call = ["scale", "small", "--groups", "small.groups.json", "-o", "huge"]
    assert main([*call, "--group", f"{data}=8192", "--replicas", "2"]) == 0
    huge = read_workload("huge.workload.json")
    assert (huge.ranks, len(huge.templates)) == (65536, 2)
    assert sum(path.stat().st_size for path in Path().glob("huge.*")) < 100_000


def described(rank: int, ranks: int) -> Trace:
    """Make half of the ranks a group each, described in metadata, with a ring of messages in each."""
    half = ranks // 2
    own = rank // half
    build = TraceBuilder()
    build.process_groups({"a": range(half), "b": range(half, ranks)})
    work = build.compute("work", micros=10 + rank)
    build.collective("all_gather", 1001, "ab"[own], after=[work])
    build.send(own * half + (rank + 1) % half, 64, after=[work])
    build.receive(own * half + (rank - 1) % half, 64)
    return build.build()


@pytest.mark.deep
@pytest.mark.usefixtures("warm_engine")
def test_replicas_that_are_independent_take_the_time_of_one(capsys: pytest.CaptureFixture[str]) -> None:
    write_workload(Workload.of([described(rank, 6) for rank in range(6)]), "six")
    assert main(["scale", "six", "--replicas", "5", "-o", "thirty"]) == 0
    printed = capsys.readouterr().out
    assert "note: no collective spans the replicas: they are independent jobs" in printed
    assert "groups         2 descriptions of members left out: groups follow rules now" in printed
    single = et_sim.simulate("six", system=SYSTEM, network=switch(6))
    many = et_sim.simulate("thirty.workload.json", system=SYSTEM, network=switch(30))
    assert many.makespan_ns == single.makespan_ns
    assert many.finish_ns.tolist() == single.finish_ns.tolist() * 5
    assert main(["scale", "six", "--replicas", "5", "-o", "files", "--expand"]) == 0
    files = et_sim.simulate("files", system=SYSTEM, network=switch(30), groups="files.groups.json")
    assert files.finish_ns.tolist() == many.finish_ns.tolist()


@pytest.mark.parametrize("arguments", [["--replicas", "1"], ["--replicas", "1", "--group", "a=3"]])
def test_once_is_the_same_again(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    write_workload(Workload.of([described(rank, 6) for rank in range(6)]), "six")
    call = ["scale", "six", *arguments, "--group", "b=3", "-o", "same"]
    assert main([*call, "--expand"]) == 0
    for rank in range(6):
        assert Path(f"same.{rank}.et").read_bytes() == Path(f"six.{rank}.et").read_bytes()
    assert main(call) == 0
    assert meaning("same.workload.json") == meaning("six")
    assert "became" not in capsys.readouterr().out.replace("6 ranks became 6", "")


def test_bytes_follow_the_size_of_the_group(capsys: pytest.CaptureFixture[str]) -> None:
    kinds = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "barrier")
    build = TraceBuilder()
    for kind in kinds:
        build.collective(kind, 0 if kind == "barrier" else 1001, "part")
    for kind in kinds:
        build.collective(kind, 0 if kind == "barrier" else 1000)
    rules = {"part": GroupRule(2, 2), "other": GroupRule(2)}
    whole = Workload((build.build(),), np.zeros(8, np.int32), group_rules=rules, relative_peers=(True,))
    write_manifest(whole, "eight.workload.json")
    assert main(["scale", "eight.workload.json", "--group", "part=6", "--replicas", "2", "-o", "more"]) == 0
    more = read_workload("more.workload.json")
    assert more.ranks == 48
    assert more.group_rules["part"] == GroupRule(6, 2)
    of_part = [1001, 334, 1001, 1001, 1001, 1001, 0]
    of_all = [1000, 167, 1000, 1000, 1000, 1000, 0]
    assert more.trace(47).comm_bytes.tolist() == of_part + of_all
    assert (
        "shares         2 all-gathers in bigger groups: smaller shares, 2 of them rounded up to whole bytes"
        in capsys.readouterr().out
    )


@pytest.mark.usefixtures("warm_engine")
def test_collectives_of_all_ranks_can_stay_within_each_replica() -> None:
    traces = []
    for rank in range(4):
        build = TraceBuilder()
        work = build.compute("work", micros=10 * rank)
        build.collective("all_reduce", 1 << 20, after=[work])
        build.collective("all_gather", 1 << 20)
        traces.append(build.build())
    write_workload(Workload.of(traces), "four")
    assert main(["scale", "four", "--replicas", "4", "--keep-groups", "-o", "alone"]) == 0
    alone = read_workload("alone.workload.json")
    assert alone.group_rules == {"replica": GroupRule(4)}
    assert alone.trace(15).comm_bytes.tolist() == [0, 1 << 20, 1 << 20]
    single = et_sim.simulate("four", system=SYSTEM, network=switch(4))
    many = et_sim.simulate("alone.workload.json", system=SYSTEM, network=switch(16))
    assert many.finish_ns.tolist() == single.finish_ns.tolist() * 4
    assert main(["scale", "four", "--replicas", "4", "-o", "joined"]) == 0
    joined = et_sim.simulate("joined.workload.json", system=SYSTEM, network=switch(16))
    assert joined.makespan_ns > single.makespan_ns


def test_groups_described_as_all_ranks_stay_within_each_replica_too() -> None:
    build = TraceBuilder()
    build.process_groups({"world": []})
    build.collective("all_reduce", 64, "world")
    build.collective("all_reduce", 64)
    write_workload(Workload.of([build.build()] * 3), "three")
    assert main(["scale", "three", "--replicas", "2", "-o", "joined"]) == 0
    joined = read_workload("joined.workload.json")
    assert (joined.group_rules, joined.trace(5).group_names) == ({}, ("", "world"))
    assert main(["scale", "three", "--replicas", "2", "--keep-groups", "-o", "alone"]) == 0
    alone = read_workload("alone.workload.json")
    assert alone.group_rules == {"like-world": GroupRule(3), "replica": GroupRule(3)}
    assert set(alone.trace(5).group_names) == {"", "like-world", "replica"}


def test_groups_of_the_same_members_grow_together_and_stay_apart() -> None:
    traces = []
    for rank in range(4):
        build = TraceBuilder()
        half = rank // 2
        build.process_groups(
            {str(9 + half): [2 * half, 2 * half + 1], f"again {half}": [2 * half, 2 * half + 1]}
        )
        build.collective("all_gather", 64, str(9 + half))
        build.collective("all_gather", 32, f"again {half}")
        traces.append(build.build())
    write_workload(Workload.of(traces), "four")
    assert main(["scale", "four", "--group", "9=8", "-o", "more"]) == 0
    more = read_workload("more.workload.json")
    assert set(more.group_rules.values()) == {GroupRule(8)}
    assert len(more.group_rules) == 2
    assert (len(more.templates), more.trace(15).comm_bytes[1:].tolist()) == (1, [16, 8])


def test_a_root_among_all_ranks_moves_to_its_first_copy() -> None:
    traces = []
    for rank in range(4):
        build = TraceBuilder()
        build.collective("broadcast", 64, root=3)
        build.collective("all_reduce", 64, "1" if rank < 2 else "2")
        traces.append(build.build())
    write_workload(Workload.of(traces), "four")
    Path("g.json").write_text('{"1": [0, 1], "2": [2, 3]}', encoding="utf-8")
    assert main(["scale", "four", "--groups", "g.json", "--group", "2=6", "-o", "more"]) == 0
    assert read_workload("more.workload.json").trace(11).comm_src[0] == 7
    assert main(["scale", "four", "--groups", "g.json", "--replicas", "3", "-o", "more"]) == 0
    assert read_workload("more.workload.json").trace(11).comm_src[0] == 3


def test_unknown_fields_are_kept() -> None:
    from converters.records import frame, parse, split

    write_workload(Workload.of([described(rank, 6) for rank in range(6)]), "six")
    for rank in range(6):
        path = Path(f"six.{rank}.et")
        header, *nodes = parse(split(path.read_bytes()), "six")
        for node in nodes:
            node.attr.add(name="rf_id", int64_val=node.id + 100)
            node.start_time_micros = 5
        path.write_bytes(frame([header, *nodes]))
    for flags in ([], ["--expand"]):
        assert main(["scale", "six", "--replicas", "2", "-o", "twelve", *flags]) == 0
        file = "twelve.11.et" if flags else "twelve.template5.et"
        _, *nodes = parse(split(Path(file).read_bytes()), "twelve")
        assert [node.attr[-1].int64_val for node in nodes] == [node.id + 100 for node in nodes]
        assert {node.start_time_micros for node in nodes} == {5}


def one_collective(kind: str = "all_reduce", group: str = "g", **more: Any) -> Trace:
    build = TraceBuilder()
    build.collective(kind, 64, group, **more)
    return build.build()


@pytest.mark.parametrize(
    ("traces", "groups", "arguments", "sentence"),
    [
        ([one_collective()] * 4, None, ["--group", "g=8"], "the members of group g of rank 0 are unknown"),
        (
            [one_collective()] * 4,
            '{"g": [0, 1, 3]}',
            ["--replicas", "2"],
            "members 0, 1, 3, which follow no rule",
        ),
        ([one_collective()] * 4, '{"g": [3, 2, 1, 0]}', ["--replicas", "2"], "which follow no rule"),
        ([one_collective()] * 4, '{"g": [0, 1, 2, 3]}', ["--group", "h=8"], "there is no group 'h'"),
        (
            [one_collective()] * 4,
            '{"g": [0, 1, 2, 3]}',
            ["--group", "g=6"],
            "has 4 members, of which 6 is no",
        ),
        (
            [one_collective()] * 4,
            '{"g": [0, 1, 2, 3]}',
            ["--group", "0=8"],
            "the group of all ranks grows by itself",
        ),
        (
            [one_collective("gather")] * 4,
            '{"g": [0, 1, 2, 3]}',
            ["--group", "g=8"],
            'node 0 "gather" has no rule for bigger groups',
        ),
        (
            [one_collective("broadcast", root=1)] * 4,
            '{"g": [0, 1, 2, 3]}',
            ["--replicas", "2"],
            'node 0 "broadcast" has a root, rank 1, in one of many groups alike',
        ),
        (
            [one_collective(group="", involved_dims=[True])] * 4,
            None,
            ["--replicas", "2"],
            'node 0 "all_reduce" names dimensions of the network (involved_dim)',
        ),
        (
            [one_collective(group="", involved_dims=[True])] * 4,
            None,
            ["--replicas", "2", "--keep-groups"],
            'node 0 "all_reduce" names dimensions of the network (involved_dim)',
        ),
        (
            [one_collective("reduce", group="", root=2)] * 4,
            None,
            ["--replicas", "2", "--keep-groups"],
            'node 0 "reduce" has a root, rank 2, in one of many groups alike',
        ),
        ([one_collective()] * 4, '{"g": [0, 1, 2, 3]}', ["--group", "g"], "--group is 'g'"),
        ([one_collective()] * 4, None, ["--replicas", "0"], "--replicas is 0"),
        ([one_collective()] * 4, None, [], "no growth is given"),
        ([one_collective(group="")] * 4, None, ["--replicas", "5000000"], "there would be 20,000,000 ranks"),
        (
            [one_collective(group="")] * 4,
            None,
            ["--replicas", "5000", "--expand"],
            "20,000 ranks would be as many",
        ),
    ],
)
def test_collectives_without_a_rule_are_refused(
    traces: list[Trace],
    groups: str | None,
    arguments: list[str],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_workload(Workload.of(traces), "four")
    if groups:
        Path("groups.json").write_text(groups, encoding="utf-8")
        arguments = [*arguments, "--groups", "groups.json"]
    assert main(["scale", "four", "-o", "more", *arguments]) == 2
    assert sentence in capsys.readouterr().err
    assert list(Path().glob("more*")) == []


def test_a_message_to_another_member_of_the_growing_group_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_workload(Workload.of([described(rank, 6) for rank in range(6)]), "six")
    assert main(["scale", "six", "--group", "a=6", "-o", "more"]) == 2
    assert (
        "rank 0 sends to or receives from rank 1, which is another member of group like-a"
        in capsys.readouterr().err
    )


def test_a_group_across_the_growing_one_is_refused() -> None:
    growth = Growth(8, {"a": GroupRule(2, 2), "wide": GroupRule(8, 1)}, "job")
    with pytest.raises(UsageError, match="lies across the members of a"):
        growth.grow(["a"], 4)


def test_groups_beside_a_growing_one_keep_their_axes() -> None:
    """Count tensor, context, pipeline and data in rank numbers, the first innermost."""
    tensor, context, stages, data = 2, 2, 3, 2
    inner = tensor * context
    rules = {
        "tensor": GroupRule(tensor),
        "data": GroupRule(data, inner * stages),
        "with context": GroupRule((context, data), (tensor, inner * stages)),
        "ends": GroupRule(2, (stages - 1) * inner, stages * inner),
    }
    growth = Growth(inner * stages * data, rules, "job")
    growth.grow(["tensor"], 8)
    growth.grow(["data"], 6)
    assert growth.rules["with context"] == GroupRule((2, 2), (8, 48))
    assert growth.rules["ends"] == GroupRule(2, 32, 48)
    with pytest.raises(
        UsageError, match=r"group ends \(size 2, stride 32, every 48\) does not lie along one"
    ):
        growth.grow(["ends"], 4)


def test_listed_groups_along_two_axes_follow_a_rule() -> None:
    groups = {"a": [0, 1, 4, 5], "b": [2, 3, 6, 7]}
    traces = [one_collective(group="ab"[rank // 2 % 2]) for rank in range(8)]
    write_workload(Workload.of(traces), "eight")
    Path("groups.json").write_text(json.dumps(groups), encoding="utf-8")
    assert main(["scale", "eight", "--groups", "groups.json", "--replicas", "2", "-o", "more"]) == 0
    assert read_workload("more.workload.json").group_rules == {"like-a": GroupRule((2, 2), (1, 4))}


@given(st.data())
def test_grown_rules_give_the_members_among_the_new_ranks(data: st.DataObject) -> None:
    """Expect exactly the copies of the members of one old group in a new group."""
    inner, middle, outer = (data.draw(st.integers(1, 3)) for _ in range(3))
    ranks = inner * middle * outer
    rules = {"in": GroupRule(inner), "mid": GroupRule(middle, inner), "out": GroupRule(outer, inner * middle)}
    growth = Growth(ranks, dict(rules), "job")
    for name in data.draw(st.permutations(["in", "mid", "out"])):
        growth.grow([name], growth.rules[name].count * data.draw(st.integers(1, 3)))
    growth.replicate(data.draw(st.integers(1, 2)))
    old_of = growth.old_rank_of_new()
    assert len(old_of) == growth.ranks
    assert np.bincount(old_of).tolist() == [growth.factor] * ranks
    first = growth.first_copy(np.arange(ranks))
    assert old_of[first].tolist() == list(range(ranks))
    for name, rule in growth.rules.items():
        for rank in range(growth.ranks):
            members = rule.members(rank)
            assert rank in members
            old = {int(old_of[member]) for member in members}
            assert old == set(rules[name].members(int(old_of[rank])))
            assert len(members) == len(old) * growth.factor_of(name)


@pytest.mark.deep
@given(st.data())
def test_messages_still_match_after_any_growth(data: st.DataObject) -> None:
    """Match random messages between random ranks: no send without its receive in any replica."""
    ranks = data.draw(st.sampled_from([2, 4, 6]))
    builds = [TraceBuilder() for _ in range(ranks)]
    for build in builds:
        build.collective("all_reduce", 64, "pair")
    for _ in range(data.draw(st.integers(0, 6))):
        source, target = (data.draw(st.integers(0, ranks - 1)) for _ in range(2))
        if source % 2 == target % 2 and source != target:
            builds[source].send(target, 64)
            builds[target].receive(source, 64)
    rules = {"pair": GroupRule(2)}
    traces = [build.build() for build in builds]
    whole = Workload(tuple(traces), np.arange(ranks, dtype=np.int32), group_rules=rules)
    name = tempfile.mkdtemp(dir=".")
    write_manifest(whole, f"{name}/random.workload.json")
    pairs, replicas = data.draw(st.integers(1, 3)), data.draw(st.integers(2, 3))
    call = [
        "scale",
        f"{name}/random.workload.json",
        "--group",
        f"pair={2 * pairs}",
        "--replicas",
        str(replicas),
    ]
    assert main([*call, "-o", f"{name}/more"]) == 0
    more = read_workload(f"{name}/more.workload.json")
    assert more.ranks == ranks * pairs * replicas
    assert [problem.text for problem in find_problems(more) if problem.severity == "error"] == []
    assert main([*call, "-o", f"{name}/files", "--expand"]) == 0
    assert meaning(f"{name}/files", f"{name}/files.groups.json") == meaning(f"{name}/more.workload.json")
