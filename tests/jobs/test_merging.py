"""Jobs merged into one workload: NPUs in place of ranks, one job taken out, and the software of all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from et_sim.jobs import read_jobs
from et_sim.jobs.merging import only
from et_sim.trace import CollectiveKind, TraceBuilder, Workload
from et_sim.trace.builder_nodes import ROOT_COLUMN
from et_sim.trace.columns import NodeKind
from et_sim.trace.expansion import Expansion
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


@pytest.mark.parametrize("count", [2, FEW, FEW + 1])
def test_ranks_of_a_job_in_another_order_are_listed_in_pairs_up_to_a_few(count: int) -> None:
    job = Job("a", "a.json", np.arange(20, 0, -1), "given")
    pairs = ", ".join(f"{rank} is {20 - rank}" for rank in range(min(count, 6)))
    assert job.numbered(range(20, 20 - count, -1)) == f"a: its rank {pairs}{', …' * (count > 6)} here"
    assert job.numbered([7]) == "a: its rank 13 is rank 7 here"
    assert job.numbered([21]) == ""
