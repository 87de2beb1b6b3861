"""Corrections of collective algorithms, each on one small example: the time with and without it.

docs/profiles.md shows the same figures.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from machines import finish_times, network, of_all_ranks, sent, simulate, system

from et_sim.trace import TraceBuilder, Workload, write_workload

MIB = 1 << 20
FULLY_CONNECTED_8 = network(["FullyConnected"], [8])


def flight(size: int) -> int:
    """Return the time of a message over 500 ns at 50 GiB/s."""
    return int(500 + size / 53.6870912)


def both_ways(
    name: str, builders: list[TraceBuilder], net: dict[str, Any], sys: dict[str, Any], **more: Any
) -> tuple[list[int], list[int]]:
    """Finish times as in the reference, and with one correction."""
    plain = finish_times(builders, net, sys, **more)
    return plain, finish_times(builders, net, {**sys, "corrections": {name: True}}, **more)


def test_exact_halving_doubling_charges_the_last_reduction_and_every_one_at_its_size() -> None:
    """Compare for 1 MiB over 8: R(256 KiB) + R(128 KiB), and then R(512 KiB) + R(256 KiB) + R(128 KiB)."""
    plain, corrected = both_ways(
        "exact-halving-doubling",
        of_all_ranks(8, "all_reduce", MIB),
        FULLY_CONNECTED_8,
        system("halvingDoubling"),
    )
    assert plain == [60835] * 8
    assert corrected == [60835 + 31455] * 8


def test_exact_halving_doubling_loses_no_bytes() -> None:
    """Send 1,000,003 B over 8: 125,001 B a piece; the reference halves to 62,500 B and doubles from there."""
    plain, corrected = both_ways(
        "exact-halving-doubling",
        of_all_ranks(8, "all_gather", 1_000_003),
        FULLY_CONNECTED_8,
        system("halvingDoubling"),
    )
    assert plain == corrected  # an all-gather only doubles
    plain, corrected = both_ways(
        "exact-halving-doubling",
        of_all_ranks(8, "all_reduce", 1_000_003),
        FULLY_CONNECTED_8,
        system("halvingDoubling", **{"local-mem-bw": 0}),
    )
    truncated = [500_001, 250_000, 125_000, 125_000, 250_000, 500_000]
    rounded_up = [500_004, 250_002, 125_001, 125_001, 250_002, 500_004]
    assert plain == [10 + sum(flight(size) + 10 for size in truncated)] * 8
    assert corrected == [10 + sum(flight(size) + 10 for size in rounded_up)] * 8


def test_tree_operations_reduce_on_the_way_up_only() -> None:
    plain, corrected = both_ways(
        "tree-operations",
        of_all_ranks(4, "all_reduce", MIB),
        network(["FullyConnected"], [4]),
        system("doubleBinaryTree"),
    )
    assert plain == [268913, 248872, 268913, 165918]
    assert corrected == [206000, 185959, 206000, 165918]


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_to_all"])
def test_tree_operations_leave_other_collectives_to_a_ring(kind: str) -> None:
    net = network(["FullyConnected"], [4])
    plain, corrected = both_ways(
        "tree-operations", of_all_ranks(4, kind, MIB), net, system("doubleBinaryTree")
    )
    assert plain == [268913, 248872, 268913, 165918]
    assert corrected == finish_times(of_all_ranks(4, kind, MIB), net, system("ring"))


def test_tree_operations_move_the_right_bytes_in_several_dimensions() -> None:
    """Run an all-reduce over two dimensions: it scatters along the first, and the tree moves a quarter."""
    net = network(["FullyConnected", "FullyConnected"], [4, 2])
    described = system("doubleBinaryTree", 2)
    plain, corrected = both_ways("tree-operations", of_all_ranks(8, "all_reduce", MIB), net, described)
    assert max(plain) == 620790
    along_ring, along_tree = 63364 - 10, 2 * (5382 + 10) + 15726
    assert max(corrected) == 10 + along_ring + 10 + along_tree + 10 + 3 * (5382 + 10)


@pytest.mark.parametrize(
    ("algorithm", "plain_ns", "mended_ns"),
    [
        ("direct1", 52119, 75708),
        ("direct2", 27540, 43266),
        ("direct4", 13775, 21638),
        ("direct", 10824, 10824),
    ],
)
def test_direct_reductions_are_charged_with_any_window(algorithm: str, plain_ns: int, mended_ns: int) -> None:
    plain, corrected = both_ways(
        "direct-reductions", of_all_ranks(8, "reduce_scatter", MIB), FULLY_CONNECTED_8, system(algorithm)
    )
    assert (plain, corrected) == ([plain_ns] * 8, [mended_ns] * 8)


def test_direct_reductions_of_a_group_are_not_charged_while_gathering() -> None:
    """Compare for four of eight ranks: 3E + 2L(m) + 2R(m), and then 3E + 2L(m) + R(m)."""
    groups = {"1": [0, 1, 2, 3]}
    builders = of_all_ranks(4, "all_reduce", MIB, group="1") + [TraceBuilder()] * 4
    plain, corrected = both_ways(
        "direct-reductions", builders, FULLY_CONNECTED_8, system("direct"), groups=groups
    )
    assert plain[:4] == [42246] * 4
    assert corrected[:4] == [42246 - 15726] * 4


def test_simulated_broadcast_uses_the_network() -> None:
    builder = TraceBuilder()
    builder.collective("broadcast", MIB, micros=5)
    plain, corrected = both_ways("simulated-broadcast", [builder] * 8, FULLY_CONNECTED_8, system())
    assert plain == [5000] * 8
    assert (corrected[0], max(corrected)) == (10, 10 + 3 * (20031 + 10))


# ---- custom collectives


def chain(folder: Path, ranks: int, size: int, tag: int = 0) -> dict[str, Any]:
    """Write a program in which place 0 sends to place 1, place 1 to place 2, and so on; return its system."""
    programs = [TraceBuilder() for _ in range(ranks)]
    for place in range(ranks):
        received = [programs[place].receive(place - 1, size, tag)] if place else []
        if place + 1 < ranks:
            programs[place].send(place + 1, size, tag, after=received)
    prefix = folder / "chain"
    write_workload(Workload.of([program.build() for program in programs]), prefix)
    return system(**{"all-reduce-implementation-custom": [str(prefix)]})


def test_custom_by_position_runs_the_program_of_the_place_in_the_list(tmp_path: Path) -> None:
    """Group [2, 0, 1] begins with rank 2, which runs file 2 in the reference; rank 0 sends to itself."""
    groups = {"1": [2, 0, 1]}
    builders = [*of_all_ranks(3, "all_reduce", 1000, group="1"), TraceBuilder()]
    net, described = network(["FullyConnected"], [4]), chain(tmp_path, 3, 1000)
    plain, corrected = both_ways("custom-by-position", builders, net, described, groups=groups)
    assert plain[:3] == [0, -1, -1]
    assert corrected[:3] == [1036, 1036, 518]


def test_custom_by_position_keeps_messages_of_the_workload_apart(tmp_path: Path) -> None:
    """Rank 0's own message has the ends, tag and size of the program's, and would be taken for it."""
    first, second = TraceBuilder(), TraceBuilder()
    sent = first.send(1, 1000, 0)
    first.collective("all_reduce", 1000, after=[sent])
    summed = second.collective("all_reduce", 1000)
    second.receive(0, 1000, 0, after=[second.compute(micros=9, after=[summed])])
    net, described = network(["FullyConnected"], [2]), chain(tmp_path, 2, 1000)
    plain, corrected = both_ways("custom-by-position", [first, second], net, described)
    assert plain == [1036, 518 + 9000]
    assert corrected == [1036, 1036 + 9000]


@pytest.mark.parametrize("profile", ["reference", "corrected"])
def test_a_program_that_moves_too_little_or_too_much_is_reported(tmp_path: Path, profile: str) -> None:
    net = network(["FullyConnected"], [2])

    def warnings(requested: int, moved: int) -> list[str]:
        described = {**chain(tmp_path, 2, moved), "profile": profile}
        result = simulate(of_all_ranks(2, "all_reduce", requested), net, described)
        return [notice["text"] for notice in result.manifest["warnings"]]

    expected = (
        "rank 0 receives 0 B in the program, and all_reduce of 1000 B over 2 members takes 1000 B to 1010 B"
    )
    assert warnings(1000, 1000) == [expected]
    write_workload(sent(2, [(0, 1, 1000), (1, 0, 1000)]), tmp_path / "both")
    described = system(**{"all-reduce-implementation-custom": [str(tmp_path / "both")]}, profile=profile)
    for requested, is_right in ((1000, True), (1005, False), (900, False)):
        result = simulate(of_all_ranks(2, "all_reduce", requested), net, described)
        assert (result.manifest["warnings"] == []) == is_right


def test_a_program_for_more_members_is_reported(tmp_path: Path) -> None:
    idle = TraceBuilder()
    idle.compute(micros=1)
    write_workload(Workload.of([idle.build()] * 3), tmp_path / "idle")
    described = system(**{"all-reduce-implementation-custom": [str(tmp_path / "idle")]})
    result = simulate(of_all_ranks(2, "all_reduce", 1000), network(["Ring"], [2]), described)
    [warning] = [notice["text"] for notice in result.manifest["warnings"]]
    assert "idle.2.et" in warning
