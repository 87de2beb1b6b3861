"""Jobs merged into one workload: NPUs in place of ranks, one job taken out, and the software of all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from et_sim.basics.errors import TraceError
from et_sim.jobs import read_jobs
from et_sim.jobs.merging import Renaming, only
from et_sim.trace import CollectiveKind, TraceBuilder, Workload
from et_sim.trace.builder_nodes import ROOT_COLUMN
from et_sim.trace.columns import BIT, NodeKind, Trace
from et_sim.trace.expansion import Expansion
from et_sim.trace.group_attributes import process_group_text
from et_sim.trace.group_rule import GroupRule
from et_sim.trace.workload import FEW, Job, MadeFor

NPUS = 9


def ring(ranks: int, *, is_relative: bool, size: int = 64) -> Workload:
    """Return ranks that send to the next one, and reduce with all and with a group of the first ones."""
    traces = []
    for rank in range(1 if is_relative else ranks):
        build = TraceBuilder()
        build.send((rank + 1) % ranks, size)
        build.receive((rank - 1) % ranks, size)
        build.collective("broadcast", size, root=ranks - 1)
        build.collective("all_reduce", size, group="7")
        traces.append(build.build())
    of_rank = np.zeros(ranks, np.int32) if is_relative else np.arange(ranks, dtype=np.int32)
    return Workload(tuple(traces), of_rank, relative_peers=(is_relative,) * len(traces))


@st.composite
def jobs(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw jobs on NPUs in any order, of which some may be idle."""
    left, entries = draw(st.permutations(range(NPUS))), []
    for name in "abc"[: draw(st.integers(1, 3))]:
        ranks = draw(st.integers(2, 3))
        work = ring(ranks, is_relative=draw(st.booleans()))
        groups = {"7": list(range(draw(st.integers(1, ranks))))}
        start = draw(st.sampled_from([0, 700]))
        entries.append(
            {"name": name, "workload": work, "npus": left[:ranks], "groups": groups, "start": start}
        )
        left = left[ranks:]
    return entries


@given(jobs())
def test_peers_roots_groups_and_starts_of_a_job_are_those_of_its_npus(entries: list[dict[str, Any]]) -> None:
    merged = read_jobs({"jobs": entries}, NPUS, profile_is_open=False)
    expansion = Expansion(merged)
    busy = set()
    for entry in entries:
        name, npus = entry["name"], entry["npus"]
        for rank, npu in enumerate(npus):
            trace = expansion.trace(npu)
            kinds = trace.kind.tolist()
            to, by = kinds.index(NodeKind.SEND), kinds.index(NodeKind.RECV)
            assert trace.comm_dst[to] == npus[(rank + 1) % len(npus)]
            assert trace.comm_src[by] == npus[rank - 1]
            root = kinds.index(NodeKind.COLL)
            assert getattr(trace, ROOT_COLUMN[CollectiveKind.BROADCAST])[root] == npus[-1]
            groups = [trace.group_names[number] for number in trace.group.tolist()[root:]]
            assert groups == [name, f"{name}/7"]
            assert trace.start_ns == entry["start"]
            busy.add(npu)
        assert merged.job_groups[name] == tuple(npus)
        assert merged.job_groups[f"{name}/7"] == tuple(npus[rank] for rank in entry["groups"]["7"])
    assert all(not len(expansion.trace(npu)) for npu in {*range(NPUS)} - busy)
    assert [job.name for job in merged.jobs] == [entry["name"] for entry in entries]


@given(jobs(), st.data())
def test_a_job_taken_out_keeps_its_traces_and_all_other_npus_are_idle(
    entries: list[dict[str, Any]], data: st.DataObject
) -> None:
    merged = read_jobs({"jobs": entries}, NPUS, profile_is_open=False)
    job = data.draw(st.sampled_from(merged.jobs))
    alone = only(merged, job)
    assert alone.jobs == (job,)
    assert len(alone.templates) == len({*alone.template_of_rank.tolist()})
    for npu in range(NPUS):
        now, then = int(alone.template_of_rank[npu]), int(merged.template_of_rank[npu])
        if npu in job.npus:
            assert alone.templates[now] is merged.templates[then]
            assert alone.has_relative_peers(now) == merged.has_relative_peers(then)
        else:
            assert not len(alone.templates[now])


@pytest.mark.parametrize("groups", [None, {"1": [0, 3]}])
def test_equal_traces_in_groups_of_a_rule_are_apart_and_named_by_the_rule(
    groups: dict[str, list[int]] | None,
) -> None:
    """List a group, too, whose number no trace names: it does not take the name of one of the rule."""
    build = TraceBuilder()
    build.send(1, 64)
    build.receive(-1, 64)
    build.collective("all_reduce", 64, group="tp")
    rule = {"tp": GroupRule(2)}
    work = Workload((build.build(),), np.zeros(4, np.int32), relative_peers=(True,), group_rules=rule)
    merged = read_jobs(
        {"jobs": [{"name": "a", "workload": work, "groups": groups}]}, 4, profile_is_open=False
    )
    named = [merged.templates[number].group_names for number in merged.template_of_rank.tolist()]
    assert named == [("", "a/tp[0]")] * 2 + [("", "a/tp[1]")] * 2
    assert len(merged.templates) == 2
    assert merged.job_groups == {"a/tp[0]": (0, 1), "a/tp[1]": (2, 3)}


LAUNCHES = MadeFor("x", launch_ns=3.0)
WAITS = "jobs were made for different software ({}), so the host takes no time"
RESERVED = "jobs were made for different software ({}), so no processors are reserved for exchanges"


@pytest.mark.parametrize(
    ("made", "kept", "remarks"),
    [
        ((None, None), None, ()),
        ((LAUNCHES, LAUNCHES), LAUNCHES, ()),
        ((MadeFor("x"), MadeFor("y")), None, ()),
        ((LAUNCHES, None), None, (WAITS.format("x, none"),)),
        ((None, MadeFor("y", step_ns=1.0)), None, (WAITS.format("none, y"),)),
        ((MadeFor("x"), MadeFor("y", reserved=2)), None, (RESERVED.format("x, y"),)),
        (
            (LAUNCHES, MadeFor("y", reserved=2)),
            None,
            (f"{WAITS.format('x, y')}, and no processors are reserved for exchanges",),
        ),
    ],
)
def test_jobs_for_one_software_keep_it_and_others_lose_its_effects_with_a_remark(
    made: tuple[MadeFor | None, ...], kept: MadeFor | None, remarks: tuple[str, ...]
) -> None:
    work = ring(2, is_relative=True)
    entries = [
        {"name": name, "workload": replace(work, software=software), "groups": {"7": [0]}}
        for name, software in zip("ab", made, strict=True)
    ]
    merged = read_jobs({"jobs": entries}, NPUS, profile_is_open=False)
    assert (merged.software, merged.notices) == (kept, remarks)


def in_job(trace: Trace, npus: list[int], of: int) -> Trace:
    job = Job("a", "a.et", np.array(npus), "npus", start_ns=70)
    return Renaming(job, of, {"8": "tp[1]"}).trace(trace)


def renamed(build: TraceBuilder, npus: list[int], of: int) -> Trace:
    return in_job(build.build(), npus, of)


def test_the_own_end_of_a_message_is_an_npu_if_it_is_given() -> None:
    build = TraceBuilder()
    build.send(2, 64)
    build.receive(1, 64)
    trace = build.build()
    ends = in_job(trace, [5, 1, 3], 9)
    assert (ends.comm_src.tolist(), ends.comm_dst.tolist()) == (
        [trace.comm_src[0], 1],
        [3, trace.comm_dst[1]],
    )
    both = np.uint32(BIT["comm_src"] | BIT["comm_dst"])
    own = {"comm_src": np.array([0, 1], np.int64), "comm_dst": np.array([2, 0], np.int64)}
    ends = in_job(replace(trace, **own, present=trace.present | both), [5, 1, 3], 9)
    assert (ends.comm_src.tolist(), ends.comm_dst.tolist()) == ([5, 1], [3, 5])


def test_the_group_of_all_ranks_has_the_name_of_its_job_unless_this_has_all_npus() -> None:
    for of, every in ((3, ""), (9, "a")):
        build = TraceBuilder()
        for group in ("7", "", "8", "0", "7"):
            build.collective("all_reduce", 64, group=group)
        trace = renamed(build, [2, 0, 1], of)
        names = [trace.group_names[number] for number in trace.group.tolist()]
        assert names == ["a/7", every, "a/tp[1]", every, "a/7"]
        assert trace.start_ns == 70


def test_groups_that_a_trace_describes_are_described_at_once_by_their_npus() -> None:
    build = TraceBuilder()
    build.compute("first", nanos=1)
    build.process_groups({"7": [0, 2], "0": [0, 1, 2]})
    build.process_groups({"8": []})
    found = renamed(build, [5, 1, 3], 9).metadata_text
    assert found == {1: process_group_text({"a/7": (5, 3), "a/tp[1]": (5, 1, 3)})}
    build = TraceBuilder()
    build.process_groups({"": [0, 1, 2]})
    assert renamed(build, [5, 1, 3], 9).metadata_text == {}


@pytest.mark.parametrize(
    ("groups", "cause"),
    [
        ({"7": [0, 3]}, 'process group "7" lists rank 3, and job "a" has ranks 0 to 2'),
        ({"7": [-1, 0]}, 'process group "7" lists rank -1, and job "a" has ranks 0 to 2'),
        ({"": [0, 2]}, 'process group "0" lists 2 ranks, and job "a" has ranks 0 to 2'),
    ],
)
def test_a_described_group_of_ranks_that_the_job_lacks_is_refused(
    groups: dict[str, list[int]], cause: str
) -> None:
    build = TraceBuilder()
    build.process_groups(groups)
    with pytest.raises(TraceError) as refusal:
        renamed(build, [5, 1, 3], 9)
    assert refusal.value.cause == cause


@pytest.mark.parametrize("count", [2, FEW, FEW + 1])
def test_ranks_of_a_job_in_another_order_are_listed_in_pairs_up_to_a_few(count: int) -> None:
    job = Job("a", "a.json", np.arange(20, 0, -1), "given")
    pairs = ", ".join(f"{rank} is {20 - rank}" for rank in range(min(count, 6)))
    assert job.numbered(range(20, 20 - count, -1)) == f"a: its rank {pairs}{', …' * (count > 6)} here"
    assert job.numbered([7]) == "a: its rank 13 is rank 7 here"
    assert job.numbered([21]) == ""
