"""Tensors in remote memory: the bound holds in any order of nodes, and every tensor is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import et_sim
from et_sim.memory import Accesses, changes, lifetimes, peaks
from et_sim.memory.spilling import Spills, spills
from et_sim.trace.order import program_order
from et_sim.trace.tensors import tensor_uses

Node = tuple[dict[str, int], dict[str, int], list[int]]  # reads, writes, comes after


def planned(nodes: list[Node], capacity: int) -> tuple[et_sim.Trace, Spills]:
    build = et_sim.TraceBuilder()
    for reads, writes, after in nodes:
        build.compute("n", nanos=1, inputs=reads, outputs=writes, after=after)
    trace = build.build()
    return trace, spills(tensor_uses(trace, ""), program_order(trace), capacity)


def moves(nodes: list[Node], capacity: int) -> list[str]:
    trace, result = planned(nodes, capacity)
    return [
        f"{'store' if is_store else 'load'} {trace.tensors.texts[tensor]}"
        for tensor, is_store in zip(result.tensors, result.is_store, strict=True)
    ]


def chain(*steps: tuple[str, str]) -> list[Node]:
    """Return nodes one after the other; a tensor's size is the number behind its letter."""
    sizes = [tuple({name: int(name[1:] or 1) for name in names.split()} for names in step) for step in steps]
    return [(reads, writes, [at - 1] if at else []) for at, (reads, writes) in enumerate(sizes)]


def test_tensors_that_fit_stay() -> None:
    assert moves(chain(("", "a4"), ("", "b4"), ("a4 b4", "c4")), 12) == []


def test_the_tensor_whose_next_use_comes_last_goes_and_comes_back() -> None:
    steps = chain(("", "a4"), ("", "b4"), ("", "c4"), ("b4", ""), ("a4 c4", ""))
    assert moves(steps, 8) == ["store a4", "load a4"]


def test_the_largest_of_tensors_used_next_together_goes_and_then_the_first_named() -> None:
    steps = chain(("", "a2 b3 c3"), ("", "d1"), ("d1 a2 b3 c3", ""))
    assert moves(steps, 8)[0] == "store b3"


def test_tensors_that_are_never_read_go_first_and_never_come_back() -> None:
    assert moves(chain(("", "g4"), ("", "a4"), ("", "b4"), ("a4 b4", "")), 8) == ["store g4"]


def test_tensors_that_were_only_read_since_their_load_are_not_stored_again() -> None:
    steps = chain(("", "a4"), ("", "b8"), ("b8", ""), ("a4", ""), ("", "c8"), ("c8", ""), ("a4", ""))
    assert moves(steps, 8) == ["store a4", "load a4", "load a4"]
    steps[3] = (steps[3][0], {"a4": 4}, steps[3][2])
    assert moves(steps, 8) == ["store a4", "load a4", "store a4", "load a4"]


def test_initial_tensors_that_do_not_fit_are_in_remote_memory() -> None:
    steps = chain(("w4", ""), ("v4", ""), ("u4", ""))
    assert moves(steps, 4) == ["load v4", "load u4"]


def test_tensors_that_are_overwritten_before_a_read_are_not_loaded() -> None:
    steps = chain(("", "a4"), ("", "b8"), ("b8", ""), ("", "a4"), ("a4", ""))
    assert moves(steps, 8) == ["store a4"]


def test_a_node_that_alone_needs_more_is_named() -> None:
    trace, result = planned(chain(("", "a4"), ("", "b4"), ("a4 b4", "c4"), ("c4", "")), 8)
    assert result.too_large == (2, 12)
    assert trace.node_id[2] == 2


def test_receives_come_as_late_as_possible() -> None:
    build = et_sim.TraceBuilder()
    answer = build.receive(1, 8)
    work = build.compute("work")
    sent = build.send(1, 8, after=[work])
    last = build.compute("last", after=[answer])
    unread = build.receive(1, 8, tag=1)
    assert program_order(build.build()) == [work, sent, answer, last, unread]


def test_the_order_fits_dependencies_on_higher_ids() -> None:
    build = et_sim.TraceBuilder()
    for number in range(5):
        build.compute("n", after=[number + 1] if number < 4 else [])
    assert program_order(build.build()) == [4, 3, 2, 1, 0]


tensors = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 9), max_size=3)


@st.composite
def programs(draw: st.DrawFn) -> list[Node]:
    count = draw(st.integers(1, 12))
    places = draw(st.permutations(range(count)))  # ids need not be in the order of dependencies
    nodes: list[Any] = [None] * count
    for at, number in enumerate(places):
        after = draw(st.lists(st.sampled_from(places[:at]), max_size=2, unique=True)) if at else []
        nodes[number] = (draw(tensors), draw(tensors), after)
    return nodes


def scheduled(trace: et_sim.Trace, found: Spills, durations: list[int]) -> tuple[list[int], list[int]]:
    """Return starts and ends of nodes and moves, each as early as possible; moves are the last rows."""
    count = found.rows + len(found.tensors)
    parents: list[set[int]] = [
        set(trace.parents(row).tolist()) if row < found.rows else set() for row in range(count)
    ]
    for parent, child in zip(found.parents, found.children, strict=True):
        parents[child].add(parent)
    start, end = [-1] * count, [-1] * count
    left = set(range(count))
    while left:
        ready = [row for row in left if all(end[parent] >= 0 for parent in parents[row])]
        assert ready, "a circle"
        for row in ready:
            start[row] = max((end[parent] for parent in parents[row]), default=0)
            end[row] = start[row] + durations[row % len(durations)]
        left -= set(ready)
    return start, end


def accesses(trace: et_sim.Trace, found: Spills, start: list[int], end: list[int]) -> Accesses:
    uses = tensor_uses(trace, "")
    rows = [*uses.row.tolist(), *range(found.rows, found.rows + len(found.tensors))]
    of_moves = [found.sizes[tensor] for tensor in found.tensors]
    return Accesses(
        owner=np.zeros(len(rows), np.int64),
        tensor=np.array([*uses.tensor.tolist(), *found.tensors], np.int64),
        bytes=np.array([*uses.bytes.tolist(), *of_moves], np.int64),
        is_write=np.array([*uses.is_write.tolist(), *(not stores for stores in found.is_store)], np.bool_),
        node=np.array(rows, np.int64),
        start_ns=np.array([start[row] for row in rows], np.int64),
        end_ns=np.array([end[row] for row in rows], np.int64),
    )


@given(programs(), st.integers(1, 60), st.lists(st.integers(1, 9), min_size=1, max_size=20))
def test_tensors_alive_fit_for_any_durations_of_nodes(
    nodes: list[Node], capacity: int, durations: list[int]
) -> None:
    trace, result = planned(nodes, capacity)
    start, end = scheduled(trace, result, durations)
    recount = changes(lifetimes(accesses(trace, result, start, end)))
    if result.too_large is None:
        assert int(peaks(recount, 1)[0]) <= capacity
    uses = tensor_uses(trace, "")
    size: dict[int, int] = {}
    for tensor, count in zip(uses.tensor.tolist(), uses.bytes.tolist(), strict=True):
        size[tensor] = max(count, size.get(tensor, 0))
    needs = [
        (sum(size[tensor] for tensor in set(uses.tensor[uses.row == row].tolist())), row)
        for row in program_order(trace)
    ]
    expected = next(((row, need) for need, row in needs if need > capacity), None)
    assert result.too_large == expected


@given(programs(), st.integers(1, 60))
def test_loads_are_of_tensors_in_remote_memory(nodes: list[Node], capacity: int) -> None:
    trace, result = planned(nodes, capacity)
    stored: set[int] = set()
    for tensor, is_store in zip(result.tensors, result.is_store, strict=True):
        if not is_store and tensor not in stored:
            uses = tensor_uses(trace, "")
            at = {row: place for place, row in enumerate(program_order(trace))}
            first = min(
                (at[row], is_write)
                for row, is_write, of in zip(
                    uses.row.tolist(), uses.is_write.tolist(), uses.tensor.tolist(), strict=True
                )
                if of == tensor
            )
            assert not first[1]  # it is there from the start
        stored.add(tensor)


def test_many_readers_and_many_takers_do_not_multiply() -> None:
    readers = 300
    nodes: list[Node] = [({"w": 1000}, {}, []) for _ in range(readers)]
    nodes += [({}, {f"t{number}": 1}, []) for number in range(1000)]
    _, result = planned(nodes, 1000)
    assert len(result.parents) < 3 * (readers + 1000)


def test_columns_of_both_traces_are_kept() -> None:
    from et_sim.trace.builder_nodes import appended

    build = et_sim.TraceBuilder()
    first = build.compute("load x", nanos=5, inputs={"x": 3}, layer_shape="gemm 1 2 3", dtype="bf16")
    build.collective("all_reduce", 64, "5", after=[first], priority=3)
    trace = build.build()
    more = et_sim.TraceBuilder()
    more.load(7, name="load x", outputs={"x": 7}, node_id=9)
    result = appended(trace, more.build(), np.array([0, 0, 2]), np.array([1, 2, 1]))
    assert [result.describe(row) for row in range(3)] == [
        'node 0 "load x"',
        'node 1 "all_reduce"',
        'node 9 "load x"',
    ]
    assert [result.parents(row).tolist() for row in range(3)] == [[], [0, 2], [0]]
    assert result.group_names == ("", "5")
    assert result.group.tolist() == [0, 1, 0]
    assert result.tensor_bytes.tolist() == [0, 0, 7]
    assert result.has("inputs").tolist() == [True, False, False]
    uses = tensor_uses(result, "")
    assert [
        (uses.names[t], r, w, b)
        for t, r, w, b in zip(uses.tensor, uses.row, uses.is_write, uses.bytes, strict=True)
    ] == [("x", 0, False, 3), ("x", 2, True, 7)]
    assert replace(result, names=result.names).names == ("load x", "all_reduce")
