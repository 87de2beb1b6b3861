"""Process groups that traces describe in metadata nodes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from machines import network, simulate, system

from et_sim.basics.errors import TraceError
from et_sim.run.result import Result
from et_sim.trace import TraceBuilder
from et_sim.trace.group_attributes import process_group_text, read_process_groups

MIB = 1 << 20
RING = network(["Ring"], [4])
HALVES = {0: (0, 1), 1: (0, 1), 2: (2, 3), 3: (2, 3)}
Groups = dict[str, Sequence[int]]


def trace(groups: Groups | None, *names: str) -> TraceBuilder:
    """Return metadata, if any, and one all-reduce after the other in the groups named."""
    builder = TraceBuilder()
    if groups is not None:
        builder.process_groups(groups)
    after: list[int] = []
    for name in names:
        after = [builder.collective("all_reduce", MIB, name, after=after)]
    return builder


def times(builders: list[TraceBuilder], **more: object) -> list[int]:
    result: Result = simulate(builders, RING, **more)  # type: ignore[arg-type]
    outcome: list[int] = result.finish_ns.tolist()
    return outcome


def listed(groups: dict[str, list[int]], *names: str) -> list[int]:
    """Return the times of the same with a groups file."""
    users = [rank for rank in range(4) if any(rank in groups[name] for name in names)]
    builders = [trace(None, *names) if rank in users else TraceBuilder() for rank in range(4)]
    return times(builders, groups=groups)


def test_a_described_group_is_timed_like_one_of_the_groups_file() -> None:
    groups: Groups = {"7": [0, 2, 1]}
    builders = [trace(groups, "7") if rank < 3 else trace(groups) for rank in range(4)]
    assert times(builders) == listed({"7": [0, 2, 1]}, "7")


def test_one_name_may_mean_other_members_on_other_ranks() -> None:
    builders = [trace({"1": HALVES[rank]}, "1") for rank in range(4)]
    both = listed({"1": [0, 1], "2": [2, 3]}, "1")[:2] + listed({"1": [0, 1], "2": [2, 3]}, "2")[2:]
    assert times(builders) == both
    assert min(both) > 0


def test_a_description_comes_before_the_groups_file_and_only_on_its_own_ranks() -> None:
    file = {"1": [2, 3]}
    builders = [trace({"1": [0, 1]} if rank < 2 else None, "1") for rank in range(4)]
    result = simulate(builders, RING, groups=file)
    assert result.is_complete
    assert len({int(time) for time in result.finish_ns}) == 1


def test_no_ranks_means_all_ranks_and_the_group_counts_for_itself() -> None:
    builders = [trace({"5": []}, "5", "")] * 4
    assert times(builders) == [2 * 79540] * 4


def test_names_need_not_be_numbers() -> None:
    result = simulate([trace({"tensor": HALVES[rank]}, "tensor") for rank in range(4)], RING)
    assert result.is_complete
    assert set(result.timeline.column("group").to_pylist()) == {None, "tensor"}


def test_group_0_is_always_all_ranks() -> None:
    assert times([trace({"0": [0, 1, 2, 3]}, "0")] * 4) == [79540] * 4
    with pytest.raises(TraceError, match='process group "0" lists 2 ranks, but the machine has 4'):
        times([trace({"0": [0, 1]}, "0")] * 4)


def test_a_rank_that_does_not_exist_is_refused() -> None:
    with pytest.raises(TraceError, match="lists rank 4; ranks are 0 to 3"):
        times([trace({"1": [0, 4]}, "1")] * 4)


def test_a_rank_that_is_not_a_member_is_refused() -> None:
    with pytest.raises(TraceError, match="rank 2 has a collective in communicator group 1"):
        times([trace({"1": [0, 1]}, "1")] * 4)


def test_ranks_that_list_the_members_in_different_orders_are_refused() -> None:
    builders = [trace({"1": order}, "1") for order in ([0, 1, 2], [0, 2, 1], [0, 1, 2])] + [TraceBuilder()]
    with pytest.raises(TraceError, match="lists its members in another order than elsewhere"):
        times(builders)


def test_one_trace_may_repeat_a_description_but_not_change_it() -> None:
    builder = TraceBuilder()
    builder.process_groups({"1": [0, 1]})
    builder.process_groups({"1": [0, 1], "2": []})
    assert read_process_groups(builder.build()) == {"1": (0, 1), "2": ()}
    builder.process_groups({"1": [0, 2]})
    with pytest.raises(TraceError, match="describes process group '1' again, with other members"):
        read_process_groups(builder.build())


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ('[\'[{"pg_name": 1, "ranks": [0, 1]\']', "is not a list of process groups"),
        ('[\'[{"pg_name": "1"}]\']', "without pg_name or ranks"),
        ("['[[\"pg_name\"]]']", "without pg_name or ranks"),
        ('[\'[{"pg_name": null, "ranks": []}]\']', "names a process group None"),
        ('[\'[{"pg_name": "1", "ranks": "all"}]\']', "ranks that are no list of whole numbers"),
        ('[\'[{"pg_name": "1", "ranks": [0, true]}]\']', "ranks that are no list of whole numbers"),
        ('[\'[{"pg_name": "1", "ranks": [0, 0]}]\']', "a rank twice"),
    ],
)
def test_malformed_descriptions_are_refused(text: str, cause: str) -> None:
    builder = TraceBuilder()
    builder.metadata(text)
    with pytest.raises(TraceError, match=cause):
        read_process_groups(builder.build())


def test_a_description_may_stand_without_its_wrapping() -> None:
    builder = TraceBuilder()
    builder.metadata(process_group_text({"1": [0, 1]})[2:-2])
    assert read_process_groups(builder.build()) == {"1": (0, 1)}


def test_other_metadata_has_no_effect_and_is_counted() -> None:
    builder = trace({"1": [0, 1]}, "")
    builder.metadata("{'schema': '1.1.1'}")
    builder.metadata("")
    result = simulate([builder] * 4, RING, system())
    coverage = result.summary()["coverage"]
    assert coverage["nodes_by_kind"]["metadata"] == 12
    assert coverage["ignored_metadata"] == 8
    assert coverage["not_executed"] == 0
