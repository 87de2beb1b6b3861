"""A library's collectives put exactly the bytes of their algorithm on every port, alone or side by side.

The forms are counted here link by link: a ring is listed with all its links, copies of pairs one by one. The
docs derive them (docs/collectives.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from fractions import Fraction
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import et_sim
from et_sim.basics.errors import UsageError
from et_sim.machine.collective_library import Call, LibraryChoice
from et_sim.machine.collective_library.constants import PROTOCOL_NAMES
from et_sim.machine.presets import names, preset
from et_sim.machine.readers import read_machine
from et_sim.plan.library_phases import LibraryPhases, _WaySteps

MIB = 1 << 20
WITHIN, BETWEEN = 0, 1  # a port to the node's switch; a network card
Port = tuple[int, int]  # rank, which of its ports
Bytes = Counter[Port]
LL, LL128, SIMPLE = "LL", "LL128", "Simple"
FLAGS = {LL: Fraction(8, 4), LL128: Fraction(128, 120), SIMPLE: Fraction(1)}
GROUPS = {
    "a node": range(8),
    "a part of a node": (1, 4, 6),
    "two ranks": (2, 5),
    "nodes": range(24),
    "two nodes": range(16),
    "strided": range(0, 24, 2),
    "one of each node": (3, 11, 19),
    "uneven": (0, 1, 2, 3, 9, 10, 17),
    "one and four": (5, 8, 9, 10, 11),
    "other places": (0, 1, 10, 15),
}
ALGORITHMS = {
    "all_reduce": ("ring", "tree", "nvls", "nvls-tree", "collnet-direct", "collnet-chain"),
    "all_gather": ("ring", "nvls", "collnet-direct", "pat"),
    "reduce_scatter": ("ring", "collnet-direct", "pat"),
    "broadcast": ("ring",),
    "reduce": ("ring",),
    "all_to_all": ("ring",),
}


class Nodes:
    """A group by its nodes of eight."""

    def __init__(self, members: Sequence[int]) -> None:
        self.members = list(members)
        self.nodes = [
            [rank for rank in members if rank // 8 == node] for node in dict.fromkeys(m // 8 for m in members)
        ]
        self.fewest = min(map(len, self.nodes))

    def rings(self) -> list[list[int]]:
        """Return a ring for each rank of the smallest node; each enters a node at another rank."""
        if len(self.nodes) == 1:
            return [self.members]
        return [
            [rank for node in self.nodes for rank in node[ring % len(node) :] + node[: ring % len(node)]]
            for ring in range(self.fewest)
        ]

    def size_of_node(self, rank: int) -> int:
        return next(len(node) for node in self.nodes if rank in node)


def on_rail(group: Nodes, source: int, target: int, *, of_source: bool = False) -> tuple[int, int]:
    """Return the senders and receivers between nodes: ranks of equal place where all are alike.

    A ring has one card of each node: of the rank at which it enters nodes, or for a reduce leaves them.
    """
    if source // 8 == target // 8 or len({len(node) for node in group.nodes}) > 1:
        return source, target
    home, away = (next(node for node in group.nodes if rank in node) for rank in (source, target))
    return (source, away[home.index(source)]) if of_source else (home[away.index(target)], target)


def hops(source: int, target: int) -> Iterator[tuple[int, int, int]]:
    """Yield (from, to, port) of links on the path, first within the node to the rank on the target's rail."""
    on_rail = source // 8 * 8 + target % 8 if source // 8 != target // 8 else target
    if on_rail != source:
        yield source, on_rail, WITHIN
    if on_rail != target:
        yield on_rail, target, BETWEEN


def transfers(
    group: Nodes, kind: str, algorithm: str, size: Fraction, root: int
) -> Iterator[tuple[int, int, Fraction]]:
    """Yield (source, target, bytes) of all transfers of a collective along links."""
    n, nodes, passes = len(group.members), len(group.nodes), 2 if kind in ("all_reduce", "barrier") else 1
    rings = group.rings()
    if algorithm == "pairs":
        for source in group.members:
            for target in group.members:
                via, _ = on_rail(group, source, target)
                if via != source:
                    yield source, via, size / n
                if via != target:
                    yield via, target, size / n
        return
    for ring in rings:
        for source, target in [*pairwise(ring), (ring[-1], ring[0])]:
            if (kind == "broadcast" and target == root) or (kind == "reduce" and source == root):
                continue
            inside, outside = _along(group, kind, algorithm, size, source, passes, nodes)
            stays = source // 8 == target // 8
            yield source, target, (inside if stays else outside) / len(rings)


def _along(
    group: Nodes, kind: str, algorithm: str, size: Fraction, source: int, passes: int, nodes: int
) -> tuple[Fraction, Fraction]:
    """Return bytes on a link within a node, and on one to the next node, over all rings together."""
    n, here = len(group.members), group.size_of_node(source)
    if algorithm == "ring":
        each = size if kind in ("broadcast", "reduce") else passes * size * (n - 1) / n
        return each, each
    trees = passes * size * (nodes - 1) / nodes  # N-1 links, in the mean of N nodes
    chain = Fraction(passes * size)
    if nodes == 1:  # a chain has one link less than a ring: in the mean of its ranks
        chain = chain * (here - 1) / here
    if algorithm.startswith("nvls"):
        node = size * (here + 1) if passes == 2 else size * here  # the bytes of all ranks of the node
        return node / here if nodes == 1 else Fraction(node, max(here - 1, 1)), trees
    if algorithm.startswith("collnet") and passes == 2:
        return chain, size
    return chain, trees


def expected(group: Nodes, kind: str, choice: LibraryChoice, size: int, root: int) -> tuple[Bytes, Bytes]:
    """Return bytes that leave every port, and bytes that arrive there."""
    protocol = PROTOCOL_NAMES[choice.protocol]
    size = 4 if kind == "barrier" else size
    leaving: Any = Counter()
    arriving: Any = Counter()
    for source, target, count in transfers(group, kind, choice.algorithm, FLAGS[protocol] * size, root):
        for here, there, port in hops(*on_rail(group, source, target, of_source=kind == "reduce")):
            leaving[here, port] += count
            arriving[there, port] += count
    return leaving, arriving


def workload(ranks: int, calls: list[tuple[str, list[int], int, int]]) -> et_sim.Workload:
    """Return collectives (kind, members, bytes, position of the root) that all begin at once."""
    traces = []
    for rank in range(ranks):
        build = et_sim.TraceBuilder()
        for number, (kind, members, size, root) in enumerate(calls):
            if rank in members:
                of_root = members[root] if kind in ("broadcast", "reduce") else None
                build.collective(kind, size, group=str(number + 1), root=of_root)
        if not any(rank in members for _, members, _, _ in calls):
            build.compute("nothing", micros=1)
        traces.append(build.build())
    return et_sim.Workload(tuple(traces), np.arange(ranks, dtype=np.int32))


def simulated(
    machine: str, calls: list[tuple[str, list[int], int, int]], model: str = "flow", **library: Any
) -> et_sim.Result:
    known = preset(machine)
    named = known.system["library"]
    groups = {str(number + 1): members for number, (_, members, _, _) in enumerate(calls)}
    return et_sim.simulate(
        workload(known.npus, calls),
        system={**known.system, "library": {**named, **library}},
        network=known.network,
        groups=groups,
        model=model,
        fold=False,
        detail="links",
    )


def carried(result: et_sim.Result) -> tuple[Bytes, Bytes]:
    """Return bytes that left every port, and bytes that arrived there."""
    leaving: Bytes = Counter()
    arriving: Bytes = Counter()
    for row in result.table("links").to_pylist():
        out = leaving if row["link"] == "to the switch" else arriving
        out[row["actor"], row["dimension"]] += row["bytes"]
    return leaving, arriving


def choice_of(machine: str, kind: str, group: Nodes, counted: int, **library: Any) -> LibraryChoice:
    known = preset(machine)
    system = {**known.system, "library": {**known.system["library"], **library}}
    named = read_machine(system=system, network=known.network).system.library
    assert named is not None
    call = Call(kind, len(group.members), len(group.nodes), counted, least=group.fewest)
    return named.choice(call)


SHORT = 400  # bytes of messages that carry none, and that are rounded up
CASES = [
    (kind, algorithm, protocol)
    for kind, algorithms in ALGORITHMS.items()
    for algorithm in algorithms
    for protocol in (FLAGS if algorithm in ("ring", "tree") and kind != "all_to_all" else (SIMPLE,))
]


@pytest.mark.in_turn(days=2)
@pytest.mark.parametrize("members", GROUPS.values(), ids=GROUPS)
@pytest.mark.parametrize(("kind", "algorithm", "protocol"), CASES)
def test_ports_carry_the_bytes_of_the_algorithm(
    kind: str, algorithm: str, protocol: str, members: Sequence[int]
) -> None:
    group, size = Nodes(members), MIB + 11
    named: dict[str, Any] = {
        "algorithms": [algorithm],
        "protocols": [protocol],
        "collnet": algorithm.startswith("collnet"),
    }
    counted = size * len(members) if kind == "all_gather" else size
    choice = choice_of("h100-dgx:24", kind, group, counted, **named)
    if kind != "all_to_all" and (choice.algorithm, choice.text.split()[1][:-1]) != (algorithm, protocol):
        pytest.skip("the library has no such way for this group")
    root = len(members) // 2
    result = simulated("h100-dgx:24", [(kind, list(members), size, root)], **named)
    found, needed = carried(result), expected(group, kind, choice, counted, group.members[root])
    for at_ports, of_form in zip(found, needed, strict=True):
        for rank in range(24):
            for port in (WITHIN, BETWEEN):
                assert -1 <= at_ports[rank, port] - of_form[rank, port] <= SHORT, (rank, port)


MACHINES = [name for name in names() if "library" in preset(name).system]
KINDS = (*ALGORITHMS, "barrier")


@st.composite
def several(draw: st.DrawFn, ranks: int) -> list[tuple[str, list[int], int, int]]:
    """Draw collectives of groups anywhere, which may overlap."""
    calls = []
    for _ in range(draw(st.integers(2, 6))):
        first, stride = draw(st.integers(0, ranks - 2)), draw(st.integers(1, 9))
        strided = list(range(first, ranks, stride))
        drawn = draw(st.lists(st.integers(0, ranks - 1), min_size=2, max_size=12, unique=True))
        members = strided if draw(st.booleans()) and len(strided) > 1 else sorted(drawn)
        kind, size = draw(st.sampled_from(KINDS)), draw(st.sampled_from([1000, MIB, 40 * MIB]))
        calls.append(
            (kind, members, 0 if kind == "barrier" else size, draw(st.integers(0, len(members) - 1)))
        )
    return calls


@pytest.mark.in_turn(days=2)
@pytest.mark.parametrize("model", ["analytical", "link", "flow"])
@pytest.mark.parametrize("name", MACHINES)
@settings(max_examples=2)
@given(data=st.data())
def test_no_link_exceeds_its_capacity_under_contention(name: str, model: str, data: st.DataObject) -> None:
    node = preset(name).npus
    machine = f"{name}:{data.draw(st.sampled_from([node, 2 * node]))}" if node <= 8 else name
    with suppress(UsageError):
        machine = preset(machine).text
    calls = data.draw(several(preset(machine).npus))
    result = simulated(machine, calls, model)
    rate = {
        (row["actor"], row["dimension"], row["link"]): row["bytes_per_ns"] * row["links"]
        for row in result.table("resources").to_pylist()
        if row["links"] and row["bytes_per_ns"]
    }
    whole: Any = Counter()
    for row in result.table("links").to_pylist():
        link = row["actor"], row["dimension"], row["link"]
        whole[link] += row["bytes"]
        assert row["bytes"] <= rate[link] * (row["end_ns"] - row["start_ns"] + 1) + 1
    for link, carried_bytes in whole.items():
        assert carried_bytes <= rate[link] * (result.makespan_ns + 1)


# In the flow model, a message of a flow that goes on ends after others of its nanosecond.
ENDS_LAST = [
    ("all_gather", [0, 1, 2, 3, 4, 5, 8, 13], 1000, 0),
    ("all_reduce", [0, 1, 2], MIB, 0),
    ("all_reduce", [0, 1], MIB, 0),
    ("all_reduce", [0, 1], MIB, 0),
    ("all_reduce", [*range(24)], 1000, 0),
]


@pytest.mark.parametrize("model", ["analytical", "link", "flow"])
@given(calls=several(24))
@example(calls=ENDS_LAST)
def test_groups_at_once_take_as_long_as_their_bytes_at_every_port(
    calls: list[tuple[str, list[int], int, int]], model: str
) -> None:
    result = simulated("h100-dgx:24", calls, model)
    needed: tuple[Any, Any] = Counter(), Counter()
    for kind, members, size, root in calls:
        group = Nodes(members)
        counted = size * len(members) if kind == "all_gather" else size
        choice = choice_of("h100-dgx:24", kind, group, counted)
        for port_bytes, of_call in zip(
            needed, expected(group, kind, choice, counted, members[root]), strict=True
        ):
            port_bytes.update(of_call)
    for at_ports, of_form in zip(carried(result), needed, strict=True):
        for (rank, port), count in of_form.items():
            assert -1 <= at_ports[rank, port] - count <= SHORT * len(calls), (rank, port)
            assert count / (50 if port else 450) <= result.makespan_ns + 1


class _CarriedError(Exception):
    """The bytes of the first message whose time on the wires is taken."""


def test_bytes_that_phases_share_go_in_few_rounds_only_if_their_own_messages_take_too_long() -> None:
    def carried(_: Any, size: int) -> int:
        raise _CarriedError(size)

    way: Any = None
    part = _WaySteps(way, steps=2, distance=(1,), size=800, at_the_same_time=4)
    phases: Any = SimpleNamespace(_carried_ns=carried)
    with pytest.raises(_CarriedError, match=r"^100$"):
        LibraryPhases._are_rounds_few(phases, ([part], []), 50)
