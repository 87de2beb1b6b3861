"""Workloads of templates as workloads of ordinary traces."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from expanded_workloads import expanded
from hypothesis import given
from hypothesis import strategies as st
from trace_oracle import assert_same_trace

from et_sim.basics.errors import TraceError
from et_sim.trace import GroupRule, TraceBuilder, Workload, read_workload, write_workload
from et_sim.trace.group_attributes import process_group_text


def template(group: str = "tensor", distance: int = 1) -> TraceBuilder:
    build = TraceBuilder()
    sent = build.send(distance, 64, tag=3)
    build.receive(-distance, 64, tag=3)
    build.collective("all_reduce", 1024, group, after=[sent])
    build.collective("all_gather", 2048, "5")
    return build


def workload(build: TraceBuilder, ranks: int = 8, **rules: GroupRule) -> Workload:
    return Workload((build.build(),), np.zeros(ranks, np.int32), relative_peers=(True,), group_rules=rules)


def test_distances_become_ranks_around_the_end() -> None:
    whole = expanded(workload(template(distance=3))).workload
    assert not any(whole.relative_peers)
    assert [int(whole.trace(rank).comm_dst[0]) for rank in range(8)] == [3, 4, 5, 6, 7, 0, 1, 2]
    assert [int(whole.trace(rank).comm_src[1]) for rank in range(8)] == [5, 6, 7, 0, 1, 2, 3, 4]
    assert int(whole.trace(2).comm_src[0]) == 0, "a send that does not name its own end still does not"


def test_groups_get_unused_numbers() -> None:
    whole, groups = expanded(
        workload(template(), tensor=GroupRule(2), data=GroupRule(4, 2), whole=GroupRule(8))
    )
    assert not whole.group_rules
    assert {number: list(members) for number, members in groups.items()} == {
        **{str(6 + pair): [2 * pair, 2 * pair + 1] for pair in range(4)},
        "10": [0, 2, 4, 6],
        "11": [1, 3, 5, 7],
        "12": [0, 1, 2, 3, 4, 5, 6, 7],
    }
    assert [whole.trace(rank).group_names for rank in (0, 1, 2, 7)] == [
        ("", "6", "5"),
        ("", "6", "5"),
        ("", "7", "5"),
        ("", "9", "5"),
    ]


def test_descriptions_in_a_trace_override_rules() -> None:
    build = template("tensor")
    build.metadata(process_group_text({"tensor": [0, 1], "9": [0, 1, 2]}))
    whole, groups = expanded(workload(build, tensor=GroupRule(4)))
    assert whole.trace(0).group_names == ("", "tensor", "5")
    assert sorted(groups) == ["10", "11"]


def test_ranks_with_equal_traces_still_share_one() -> None:
    build = TraceBuilder()
    build.collective("all_reduce", 1024, "tensor")
    whole = expanded(workload(build, tensor=GroupRule(4))).workload
    assert whole.template_of_rank.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


def test_an_ordinary_workload_is_its_own_expansion() -> None:
    plain = Workload.of([template("1").build()] * 2)
    assert expanded(plain).workload is plain
    assert expanded(plain).groups == {}


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 4))
def test_every_rank_is_in_one_group_of_a_rule_at_its_position(size: int, stride: int, blocks: int) -> None:
    rule, ranks = GroupRule(size, stride), size * stride * blocks
    groups = expanded(workload(template("x"), ranks, x=rule)).groups
    assert sorted(rank for members in groups.values() for rank in members) == list(range(ranks))
    for number, members in groups.items():
        for position, rank in enumerate(members):
            assert members == rule.members(rank)
            assert (rule.first(rank), rule.position(rank)) == (members[0], position)
            assert str(6 + rule.index(rank)) == number


def test_files_of_a_workload_hold_its_expansion(tmp_path: Path) -> None:
    given = workload(template(), tensor=GroupRule(2, 4))
    write_workload(given, tmp_path / "w")
    read, (whole, groups) = read_workload(tmp_path / "w"), expanded(given)
    for rank in range(8):
        assert_same_trace(read.trace(rank), whole.trace(rank))
    listed = json.loads((tmp_path / "w.groups.json").read_text(encoding="utf-8"))
    assert listed == {number: list(members) for number, members in groups.items()}


def test_bad_descriptions_of_groups_do_not_keep_a_trace_from_being_written(tmp_path: Path) -> None:
    build = TraceBuilder()
    build.metadata("about pg_name, in words")
    write_workload(Workload.of([build.build()]), tmp_path / "w")
    with pytest.raises(TraceError, match="not a list of process groups"):
        expanded(workload(build, x=GroupRule(2)))
