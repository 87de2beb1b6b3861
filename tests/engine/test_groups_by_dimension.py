"""Groups on a part of the machine: they run as on a machine of their own shape, and use all ports."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import algorithms, network, system

from et_sim.api import run
from et_sim.basics.errors import MachineError
from et_sim.machine import read_machine
from et_sim.machine.presets import entry, names, preset
from et_sim.plan.layout import EqualLines, classes_of_groups, rings_through, sides_of_group
from et_sim.trace import GroupRule, TraceBuilder, Workload

MODELS = ("analytical", "link", "flow")
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "barrier")
MIB, B = 1 << 20, 50 * 1.073741824  # bytes/ns between nodes
NODES = network(["Switch", "Switch"], [4, 4])
NODES["bandwidth"] = [400, 50]


def alone(kind: str, size: int, members: list[int], ranks: int, machine: dict[str, Any], **more: Any) -> Any:
    """Finish times of the members, in ascending order, of a collective of some of the ranks."""
    builders = [TraceBuilder() for _ in range(ranks)]
    group = "" if len(members) == ranks else "1"
    for rank in members:
        builders[rank].collective(kind, size, group, root=min(members) if kind == "broadcast" else None)
    groups = {"groups": {"1": members}} if group else {}
    workload = Workload.of([builder.build() for builder in builders])
    return run(workload, **machine, **groups, **more).finish_ns[sorted(members)].tolist()


def lattice(npus: list[int], places: list[list[int]]) -> list[int]:
    """Return the ranks with these places in every dimension."""
    strides = np.cumprod([1, *npus[:-1]]).tolist()
    return [
        sum(place * stride for place, stride in zip(reversed(at), strides, strict=True))
        for at in product(*reversed(places))
    ]


def own_shape(machine: dict[str, Any], sizes: list[int]) -> dict[str, Any]:
    """Return the machine with these sizes; dimensions of one NPU are left out unless a library is set."""
    kept = [number for number, size in enumerate(sizes) if size > 1 or "library" in machine["system"]]
    net = {key: [values[number] for number in kept] for key, values in machine["network"].items()}
    net["npus_count"] = [sizes[number] for number in kept]
    keys = dict(machine["system"])
    for key, values in keys.items():
        if key.endswith("-implementation"):
            keys[key] = [values[number] for number in kept]
    return {"network": net, "system": keys}


def machines() -> list[tuple[str, list[str]]]:
    """Return presets of several dimensions, with their topologies."""
    sizes = {name: 144 if "72" in name else 64 for name in names()}
    large = [preset(f"{name}:{npus}") for name, npus in sizes.items() if entry(name).most >= npus]
    return [(case.text, case.network["topology"]) for case in large if "topology" in case.network]


@st.composite
def groups(draw: Any, topologies: list[str]) -> tuple[list[int], list[list[int]]]:
    """Draw the shape of a machine and a sub-grid: all places or one of a ring, any of other dimensions."""
    npus = [draw(st.integers(2, 3 if len(topologies) > 2 else 5)) for _ in topologies]
    places = []
    for topology, size in zip(topologies, npus, strict=True):
        if topology == "Ring":
            places.append(draw(st.sampled_from([list(range(size)), [draw(st.integers(0, size - 1))]])))
            continue
        stride = draw(st.integers(1, size))
        count = draw(st.integers(1, -(-size // stride)))
        first = draw(st.integers(0, size - 1 - (count - 1) * stride))
        places.append(list(range(first, size, stride))[:count])
    return npus, places


@pytest.mark.deep
@given(st.data())
def test_a_sub_grid_takes_the_time_of_a_machine_of_its_own_shape(data: st.DataObject) -> None:
    name, topologies = data.draw(st.sampled_from(machines()))
    npus, places = data.draw(groups(topologies))
    sizes = [len(of) for of in places]
    kind, model = data.draw(st.sampled_from(KINDS)), data.draw(st.sampled_from(MODELS))
    size = data.draw(st.sampled_from([1, 1000, 65_536, 100_001]))
    order = data.draw(st.sampled_from(["ascending", "roundRobin", "offlineGreedy", "offlineGreedyFlex"]))
    described = preset(name)
    keys = {**described.system, "profile": "corrected", "inter-dimension-scheduling": order}
    # a library depends on nodes, and a machine without one of its dimensions has other nodes
    if keys.pop("library", None):
        keys |= algorithms("ring", len(npus)) | {"all-to-all-implementation": ["direct"] * len(npus)}
    machine = {"network": {**described.network, "npus_count": npus}, "system": keys}
    members = lattice(npus, places)
    if len(members) == 1:
        return
    shuffled = data.draw(st.permutations(members))
    there = alone(kind, size, shuffled, int(np.prod(npus)), machine, model=model)
    on_its_own = own_shape(machine, sizes)
    assert there == alone(kind, size, list(range(len(members))), len(members), on_its_own, model=model)


@pytest.mark.parametrize("model", ["link", "flow"])
@pytest.mark.parametrize("kind", KINDS[:4])
@pytest.mark.parametrize("places", [[1, 2, 3, 4], [0, 3], [0, 2, 4]])
def test_a_part_of_a_ring_is_never_faster_than_a_ring_of_its_own(
    places: list[int], kind: str, model: str
) -> None:
    machine = {"network": network(["Ring", "Ring"], [6, 2]), "system": system("ring", 2, profile="corrected")}
    members = lattice([6, 2], [places, [0, 1]])
    ring = own_shape(machine, [len(places), 2])
    own = alone(kind, 100_000, list(range(len(members))), len(members), ring, model=model)
    assert max(alone(kind, 100_000, members, 12, machine, model=model)) >= max(own)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("model", "keys"),
    [
        ("flow", {"rings": [[[0, 1, 2, 3], [3, 2, 1, 0]], []], "preferred-dataset-splits": 4}),
        (
            "link",
            {"all-reduce-implementation": ["doubleBinaryTree", "halvingDoubling"], "endpoint-delay": 300},
        ),
        ("flow", {"all-reduce-implementation": ["direct2", "oneRing"], "num-queues-per-dim": 2}),
        ("analytical", {"model-shared-bus": 1, "L": 100, "o": 10, "g": 10, "G": 0.01, "endpoint-delay": 0}),
    ],
    ids=["rings", "trees", "one", "bus"],
)
def test_keys_of_the_system_file_hold_for_groups(kind: str, model: str, keys: dict[str, Any]) -> None:
    described = system("ring", 2, profile="corrected", **keys)
    machine = {"network": NODES, "system": described}
    own = {**machine, "network": {**NODES, "npus_count": [4, 2]}}
    there = alone(kind, MIB, list(range(4, 12)), 16, machine, model=model)
    assert there == alone(kind, MIB, list(range(8)), 8, own, model=model)


@given(st.lists(st.integers(1, 6), min_size=2, max_size=5))
def test_rings_through_uneven_nodes_share_no_port(blocks: list[int]) -> None:
    begins = np.cumsum([0, *blocks])
    rings = rings_through(blocks)
    assert len(rings) == min(blocks)
    entered, left = [], []
    for ring in rings:
        assert sorted(ring) == list(range(sum(blocks)))
        node = np.searchsorted(begins, ring, side="right")
        entered += [ring[at] for at in range(len(ring)) if node[at] != node[at - 1]]
        left += [ring[at - 1] for at in range(len(ring)) if node[at] != node[at - 1]]
    assert len(set(entered)) == len(entered) == len(set(left)) == len(left) == len(blocks) * len(rings)


@pytest.mark.parametrize(
    ("members", "sides"),
    [
        ([0, 1, 2, 3], [EqualLines(0, 1, 2), EqualLines(1, 2, 2)]),
        ([0, 3, 8, 11], [EqualLines(1, 1, 2), EqualLines(2, 2, 2)]),
        ([0, 2, 4, 6], [EqualLines(1, 1, 4)]),
        ([0, 1, 2, 3, 4, 5, 8, 9, 10, 11], [EqualLines(0, 1, 2), EqualLines(2, 2, 5, (3, 2), 1)]),
        ([0, 1, 2, 8, 9, 10], [EqualLines(1, 1, 3, (2, 1)), EqualLines(2, 3, 2)]),
        ([0, 1, 2, 8, 10, 11], [EqualLines(2, 1, 6, (2, 1, 1, 2))]),
        ([0, 1, 2, 8], [EqualLines(2, 1, 4, (2, 1, 1))]),
        ([5], []),
    ],
)
def test_sides_follow_the_nodes_and_racks_as_far_as_these_hold_equally_many(
    members: list[int], sides: list[EqualLines]
) -> None:
    net = network(["Switch"] * 3, [2, 4, 2])
    grid = read_machine(system=system("ring", 3), network=net).network.grid
    assert list(sides_of_group(grid, np.array(members))) == sides
    moved = np.array([members, members])
    assert classes_of_groups(grid, moved).tolist() == [0, 0]


def test_groups_of_other_sides_are_of_other_classes() -> None:
    grid = read_machine(system=system("ring", 2), network=NODES).network.grid
    groups = np.array([[0, 1, 4, 5], [2, 3, 6, 7], [0, 1, 2, 3], [3, 4, 5, 6]])
    classes = classes_of_groups(grid, groups).tolist()
    assert classes[0] == classes[1]
    assert len(set(classes)) == 3
    assert classes_of_groups(grid, groups[:0]).tolist() == []


def group_times(members: list[int], kind: str = "all_reduce", size: int = MIB, **more: Any) -> Any:
    keys = system(
        "ring", 2, profile="corrected", **{"active-chunks-per-dimension": 2, "local-mem-bw": 0, **more}
    )
    keys["all-to-all-implementation"] = ["direct", "direct"]
    return max(alone(kind, size, members, 16, {"network": NODES, "system": keys}, model="flow"))


def test_members_of_equal_number_in_their_nodes_run_node_by_node_wherever_they_stand_there() -> None:
    straight, across = (
        group_times(members, size=64 * MIB) for members in ([0, 1, 4, 5, 8, 9], [0, 3, 5, 6, 8, 9])
    )
    assert straight < across < 1.1 * straight  # messages to another place also cross the node


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
@pytest.mark.parametrize(
    "members", [[0, 1, 2, 3, 4, 5], [0, 1, 5, 6, 7, 8, 9, 10], [1, 2, 3, 5, 6, 7, 12, 15]]
)
def test_a_group_of_unequal_nodes_is_near_the_bound_of_its_ports(kind: str, members: list[int]) -> None:
    size = 64 * MIB
    took = group_times(members, kind, size)
    nodes = [rank // 4 for rank in members]
    counts = [nodes.count(node) for node in sorted(set(nodes))]
    n, ports = len(members), min(counts)
    through = {"all_reduce": 2 * (n - 1) / n, "all_gather": n - 1, "reduce_scatter": (n - 1) / n}
    if kind == "all_to_all":
        bound = max(size * (n - count) / n for count in counts) / B
    else:
        bound = through[kind] * size / ports / B
    assert bound < took * 1.0001
    assert took < 1.35 * bound


@pytest.mark.deep
def test_rings_of_unequal_nodes_all_run_at_once_with_any_number_of_active_chunks() -> None:
    members = [0, 1, 2, 4, 5, 6, 7]
    alike = [group_times(members, size=64 * MIB, **{"active-chunks-per-dimension": n}) for n in (1, 2)]
    assert alike[0] < 1.3 * alike[1]
    assert alike[0] < 0.5 * group_times([0, 4, 5, 6, 7], size=64 * MIB)


@pytest.mark.parametrize("model", MODELS)
def test_groups_of_a_rule_that_lie_differently_run_as_if_each_were_listed(model: str) -> None:
    keys = system("ring", 2, profile="corrected")
    machine = {"network": {**NODES, "npus_count": [4, 6]}, "system": keys, "model": model}
    build = TraceBuilder()
    build.collective("all_reduce", MIB, "dp")
    by_rule = Workload(
        (build.build(),), np.zeros(24, np.int32), group_rules={"dp": GroupRule(6)}, profile="corrected"
    )
    together = run(by_rule, **machine)
    builders = [TraceBuilder() for _ in range(24)]
    for rank, builder in enumerate(builders):
        builder.collective("all_reduce", MIB, str(1 + rank // 6))
    listed = {str(1 + number): list(range(number * 6, number * 6 + 6)) for number in range(4)}
    expected = run(Workload.of([builder.build() for builder in builders]), **machine, groups=listed)
    assert together.finish_ns.tolist() == expected.finish_ns.tolist()
    assert run(by_rule, **machine, fold=False).finish_ns.tolist() == expected.finish_ns.tolist()
    meets_at_ports = model in ("link", "analytical")
    assert meets_at_ports or len(together.outcome.plan.actors) < 24


def test_an_algorithm_for_every_dimension_that_a_group_crosses_is_needed() -> None:
    keys = system("ring", 1, profile="corrected")
    machine = {"network": NODES, "system": keys}
    assert max(alone("all_reduce", MIB, [0, 1], 16, machine)) > 0
    with pytest.raises(MachineError, match="a group across dimension 1"):
        alone("all_reduce", MIB, [0, 1, 4, 5], 16, machine)


def test_the_reference_keeps_one_ring_through_the_members_as_listed() -> None:
    keys = system("ring", 2)
    machine = {"network": NODES, "system": keys, "model": "flow"}
    orders = [alone("all_reduce", MIB, members, 16, machine) for members in ([0, 1, 4, 5], [0, 4, 1, 5])]
    assert orders[0] != orders[1]
