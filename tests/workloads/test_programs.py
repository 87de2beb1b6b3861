"""Programs of ranks: invalid calls are refused in one sentence."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from et_sim.basics.errors import UsageError
from et_sim.workloads import Axes, Rank, make_workload

AXES = Axes(tensor=4, data=4)


@pytest.mark.parametrize(
    ("names", "sizes", "message"),
    [
        ((), {"expert": 4}, "split requires an axis (name some of tensor, data before"),
        (("tensor",), {}, "no sizes are 1 places, but the axes have 4 ranks"),
        (("tensor",), {"expert": "4"}, "axis 'expert' has '4' places"),
        (("tensor",), {"expert": 3}, "expert 3 are 3 places, but the axes have 4 ranks"),
    ],
)
def test_invalid_splits_of_axes_are_refused(
    names: tuple[str, ...], sizes: dict[str, int], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        AXES.split(*names, **sizes)
    assert message in str(caught.value)


def _two_groups_of_a_name(rank: Rank) -> None:
    rank.collective("all_reduce", 8, over="a-b")
    rank.collective("all_reduce", 8, over=("a", "b"))


def _ends_and_an_axis_of_a_name(rank: Rank) -> None:
    rank.collective_of_ends("all_reduce", 8, "c")
    rank.collective("all_reduce", 8, over="c-ends")


@pytest.mark.parametrize("program", [_two_groups_of_a_name, _ends_and_an_axis_of_a_name])
def test_groups_that_differ_do_not_share_a_name(program: Callable[[Rank], None]) -> None:
    axes = Axes(**{"a": 2, "b": 2, "a-b": 4, "c": 3, "c-ends": 2})
    with pytest.raises(UsageError, match="two different groups have the name"):
        make_workload(axes, program)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (lambda rank: rank.compute("x", micros=1, after=(99,)), "after names 99, but the rank has 0 nodes"),
        (lambda rank: rank.compute("x", micros=1, after=(-1,)), "after names -1"),
        (lambda rank: rank.compute("x", micros=1, after=5), "after is 5 (give results of operations"),
        (lambda rank: rank.compute("x", micros=1, after="x"), "after is 'x'"),
        (lambda rank: rank.send(16, 8), "to is 16, but no two of 16 ranks have this distance"),
        (lambda rank: rank.receive(-16, 8), "source is -16, but no two of 16 ranks have this distance"),
        (lambda rank: rank.send(rank.next("data", 1.5, wraps=True), 8), "steps is 1.5"),
        (lambda rank: rank.send(rank.at("data", 1.5), 8), "place is 1.5"),
    ],
)
def test_invalid_calls_of_programs_are_refused(program: Callable[[Rank], None], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        make_workload(AXES, program)
    assert message in str(caught.value)


def test_after_may_be_a_list() -> None:
    def step(rank: Rank) -> None:
        first = rank.compute("a", micros=1, stream=None)
        rank.compute("b", micros=1, after=[*first, *first], stream=None)

    (template,) = make_workload(AXES, step).templates
    assert template.data_deps.tolist() == [0]


def test_a_rank_at_or_behind_a_place_differs_from_those_before() -> None:
    def program(rank: Rank) -> None:
        rank.compute("late" if rank.is_from("data", 3) else "early", micros=1)

    workload = make_workload(Axes(tensor=2, data=5), program)
    assert len(workload.templates) == 2
    assert workload.template_of_rank.tolist() == [0] * 6 + [1] * 4
