"""Tensors alive in an NPU's own memory, against a count nanosecond by nanosecond; and classes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from et_sim.memory import CLASSES, Accesses, changes, classes_of, lifetimes, peaks
from et_sim.memory.footprint import FOREVER


@dataclass(frozen=True)
class Node:
    start: int
    end: int
    reads: list[tuple[int, int]] = field(default_factory=list)  # tensor, bytes
    writes: list[tuple[int, int]] = field(default_factory=list)


def accesses(owners: list[list[Node]], shuffle: st.DataObject | None = None) -> Accesses:
    rows = [
        (owner, tensor, size, is_write, number, node.start, node.end)
        for owner, nodes in enumerate(owners)
        for number, node in enumerate(nodes)
        for is_write, listed in ((False, node.reads), (True, node.writes))
        for tensor, size in listed
    ]
    if shuffle is not None:
        rows = shuffle.draw(st.permutations(rows))
    columns = zip(*rows, strict=True) if rows else [[]] * 7
    kinds = (np.int32, np.int32, np.int64, np.bool_, np.int64, np.int64, np.int64)
    return Accesses(*(np.array(list(c), kind) for c, kind in zip(columns, kinds, strict=True)))


def alive_at(nodes: list[Node], time: int) -> int:
    """Return bytes alive just after `time`, by completing nodes one after another."""
    done = sorted(range(len(nodes)), key=lambda n: (nodes[n].end, nodes[n].start, n))
    size: dict[int, int] = {}
    values: dict[int, list[list[int]]] = {}  # tensor -> its values as [since, until]
    for node in (nodes[number] for number in done):
        for tensor, count in node.reads:
            size.setdefault(tensor, count)
            value = values.setdefault(tensor, [[0, node.end]])[-1]
            value[1] = node.end
        for tensor, count in node.writes:
            size.setdefault(tensor, count)
            values.setdefault(tensor, [])
            if values[tensor] and values[tensor][-1][1] == FOREVER:
                values[tensor][-1][1] = node.start  # overwritten before a node read it
            values[tensor].append([node.start, FOREVER])
    return sum(
        size[tensor]
        for tensor, lives in values.items()
        if any(since <= time < until for since, until in lives)
    )


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    start = draw(st.integers(0, 12))
    use = st.tuples(st.integers(0, 3), st.integers(1, 9))
    # A node lists a tensor once on each side; a second entry has no effect, but may give another size.
    listed = st.lists(use, max_size=3, unique_by=lambda pair: pair[0])
    return Node(start, start + draw(st.integers(0, 5)), draw(listed), draw(listed))


@given(st.lists(st.lists(nodes(), max_size=7), max_size=3), st.data())
def test_bytes_alive_are_those_counted_out(owners: list[list[Node]], data: st.DataObject) -> None:
    result = changes(lifetimes(accesses(owners, data)))
    seen: dict[tuple[int, int], int] = {}
    for owner, time, alive in zip(result.owner, result.time_ns, result.alive_bytes, strict=True):
        assert seen.setdefault((int(owner), int(time)), int(alive)) == alive
    counted = [[alive_at(of_owner, time) for time in range(20)] for of_owner in owners]
    for (owner, time), alive in seen.items():
        assert alive == counted[owner][time]
    for owner, alive_over_time in enumerate(counted):
        now = 0
        for time, alive in enumerate(alive_over_time):
            now = seen.get((owner, time), now)  # between changes nothing changes
            assert now == alive
    assert peaks(result, len(owners)).tolist() == [max(over_time) for over_time in counted]


@given(st.lists(nodes(), max_size=7), st.data())
def test_a_tensor_never_counts_twice_and_changes_add_up(of_owner: list[Node], data: st.DataObject) -> None:
    result = changes(lifetimes(accesses([of_owner], data)))
    for tensor in np.unique(result.tensor):
        deltas = result.delta_bytes[result.tensor == tensor]
        assert set(np.cumsum(deltas).tolist()) <= {0, int(np.abs(deltas).max()), -int(np.abs(deltas).max())}
    order = np.argsort(result.time_ns, kind="stable")
    assert order.tolist() == list(range(len(order)))
    if len(order):
        assert result.alive_bytes[-1] == result.delta_bytes.sum()


@given(st.lists(nodes(), max_size=7), st.integers(2, 4))
def test_owners_do_not_disturb_each_other(of_owner: list[Node], copies: int) -> None:
    alone = changes(lifetimes(accesses([of_owner])))
    together = changes(lifetimes(accesses([of_owner] * copies)))
    for owner in range(copies):
        mine = together.owner == owner
        for column in ("time_ns", "tensor", "node", "delta_bytes", "alive_bytes"):
            assert getattr(together, column)[mine].tolist() == getattr(alone, column).tolist()


def story(*of_owner: Node) -> list[tuple[int, int, int, int]]:
    result = changes(lifetimes(accesses([list(of_owner)])))
    columns = (result.time_ns, result.tensor, result.delta_bytes, result.alive_bytes)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_the_chain_of_the_specification() -> None:
    kib = 1024
    a = Node(0, 5000, [(0, kib)], [(1, 2 * kib), (2, kib * kib)])
    b = Node(5000, 8000, [(1, 2 * kib)], [(3, 4 * kib)])
    c = Node(8000, 10000, [(3, 4 * kib), (0, kib)])
    alive = {time: bytes_alive / kib**2 for time, _, _, bytes_alive in story(a, b, c)}
    assert {time: round(mib, 5) for time, mib in alive.items()} == {
        0: 1.00293,
        5000: 1.00684,
        8000: 1.00488,
        10000: 1.0,
    }


def test_tensors_without_readers_live_for_ever() -> None:
    assert story(Node(3, 5, writes=[(0, 7)])) == [(3, 0, 7, 7)]


def test_tensors_that_were_never_written_are_there_from_the_start() -> None:
    assert story(Node(3, 5, reads=[(0, 7)])) == [(0, 0, 7, 7), (5, 0, -7, 0)]


def test_a_tensor_updated_in_place_keeps_its_memory() -> None:
    update = Node(5, 6, reads=[(0, 7)], writes=[(0, 7)])
    assert story(Node(1, 2, writes=[(0, 7)]), update, Node(8, 9, reads=[(0, 7)])) == [
        (1, 0, 7, 7),
        (9, 0, -7, 0),
    ]


def test_a_name_used_for_another_value_is_not_alive_in_between() -> None:
    first, second = Node(1, 2, writes=[(0, 7)]), Node(6, 7, writes=[(0, 7)])
    read_first, read_second = Node(2, 4, reads=[(0, 7)]), Node(7, 9, reads=[(0, 7)])
    assert story(first, read_first, second, read_second) == [
        (1, 0, 7, 7),
        (4, 0, -7, 0),
        (6, 0, 7, 7),
        (9, 0, -7, 0),
    ]


def test_a_value_overwritten_before_any_read_holds_its_memory_until_then() -> None:
    first, second = Node(1, 2, writes=[(0, 7)]), Node(6, 7, writes=[(0, 7)])
    assert story(first, second, Node(7, 9, reads=[(0, 7)])) == [(1, 0, 7, 7), (9, 0, -7, 0)]


def test_the_first_size_mentioned_counts() -> None:
    assert story(Node(1, 2, writes=[(0, 7)]), Node(2, 4, reads=[(0, 900)])) == [(1, 0, 7, 7), (4, 0, -7, 0)]


def test_nothing_is_alive_where_nothing_is_named() -> None:
    result = changes(lifetimes(accesses([[], []])))
    assert len(result.owner) == 0
    assert peaks(result, 2).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("tensor", "found"),
    [
        ("weights:layer 3", "weights"),
        ("gradients:weight", "gradients"),
        ("optimizer:exp_avg", "optimizer"),
        ("activations:x", "activations"),
        ("temporary:y", "temporary"),
        ("unknown:weights", "unknown"),
        ("layer1.weight", "weights"),
        ("layer1.weight.grad", "gradients"),
        ("Adam.momentum.weight_0", "weights"),
        ("weight_0.momentum", "optimizer"),
        ("model.BIAS", "weights"),
        ("workspace", "temporary"),
        ("weightless", "unknown"),
        ("stage:weights", "weights"),
        ("mb0.transformer.0.x@0", "unknown"),
        ("", "unknown"),
    ],
)
def test_the_class_of_a_tensor_follows_from_its_name(tensor: str, found: str) -> None:
    assert [CLASSES[number] for number in classes_of([tensor])] == [found]
