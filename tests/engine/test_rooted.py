"""Collectives over a tree on every kind of machine: ends, waits, and refusals."""

from __future__ import annotations

from typing import Any

import pytest
from machines import finish_times, network, of_all_ranks, system

from et_sim.basics.errors import MachineError, TraceError
from et_sim.trace import TraceBuilder

KINDS = ("reduce", "gather", "scatter", "broadcast", "barrier")
TO_ROOT, FROM_ROOT = ("reduce", "gather"), ("scatter", "broadcast")
SIMULATED = {"corrections": {"simulated-broadcast": True}}
OTHERS = ("Switch", "FullyConnected")
BUS = {"model-shared-bus": 1, "L": 5, "o": 3, "g": 20, "G": 0.01}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("model", ["analytical", "link"])
@pytest.mark.parametrize("rendezvous", [False, True])
@pytest.mark.parametrize("keys", [{}, BUS, {"num-queues-per-dim": 3, "active-chunks-per-dimension": 3}])
@pytest.mark.parametrize(
    "shape", ["Ring", *(pytest.param(shape, marks=pytest.mark.deep) for shape in OTHERS)]
)
def test_rooted_collectives_complete_on_every_machine(
    kind: str, model: str, rendezvous: bool, keys: dict[str, Any], shape: str
) -> None:
    described = system(
        **SIMULATED, **keys, **{"rendezvous-protocol": rendezvous, "preferred-dataset-splits": 3}
    )
    for ranks in (2, 3, 7, 8):
        times = finish_times(of_all_ranks(ranks, kind), network([shape], [ranks]), described, model=model)
        assert min(times) > 0


@pytest.mark.parametrize("kind", KINDS)
def test_rooted_collectives_cross_the_whole_system_in_rank_order(kind: str) -> None:
    """Check that neighbours in the tree pay for the dimensions between them."""
    net = network(["Ring", "Switch", "FullyConnected"], [3, 2, 2])
    times = finish_times(of_all_ranks(12, kind), net, system(dimensions=3, **SIMULATED))
    assert min(times) > 0
    along = finish_times(
        of_all_ranks(12, kind, involved_dims=[True, False, False]), net, system(dimensions=3, **SIMULATED)
    )
    alone = finish_times(of_all_ranks(3, kind), network(["Ring"], [3]), system(**SIMULATED))
    assert along == alone * 4


@pytest.mark.parametrize("kind", KINDS)
def test_a_listed_group_of_all_ranks_has_no_dimensions_to_choose_from(kind: str) -> None:
    net, every = network(["Ring", "Ring"], [2, 4]), {"1": list(range(8))}
    described = system(dimensions=2, **SIMULATED)
    chosen = of_all_ranks(8, kind, group="1", involved_dims=[True, False])
    assert finish_times(chosen, net, described, groups=every) == finish_times(
        of_all_ranks(8, kind), net, described
    )


@pytest.mark.parametrize("kind", KINDS)
def test_alone_they_take_no_time(kind: str) -> None:
    builders = of_all_ranks(4, kind, group="1")[:1] + [TraceBuilder()] * 3
    net = network(["Ring"], [4])
    assert finish_times(builders, net, system(**SIMULATED), groups={"1": [0]}) == [0, 0, 0, 0]
    none = of_all_ranks(4, kind, involved_dims=[False])
    assert finish_times(none, net, system(**SIMULATED)) == [0, 0, 0, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_groups_have_trees_of_their_own_in_the_order_of_their_lists(kind: str) -> None:
    groups = {"1": [6, 0, 4, 2], "2": [7, 5, 3, 1]}
    builders = [of_all_ranks(1, kind, group=str(1 + rank % 2))[0] for rank in range(8)]
    times = finish_times(builders, network(["FullyConnected"], [8]), system(**SIMULATED), groups=groups)
    alone = finish_times(of_all_ranks(4, kind), network(["FullyConnected"], [4]), system(**SIMULATED))
    assert [times[rank] for rank in groups["1"]] == [times[rank] for rank in groups["2"]] == alone


@pytest.mark.parametrize("kind", [*TO_ROOT, *FROM_ROOT])
def test_the_root_is_a_rank_of_the_group(kind: str) -> None:
    """Check that with another root the tree is rotated: equal times for ranks as far behind the root."""
    net = network(["FullyConnected"], [8])
    groups = {"5": [1, 3, 4, 6]}
    builders = [TraceBuilder() for _ in range(8)]
    for rank in groups["5"]:
        builders[rank].collective(kind, 1 << 16, "5", root=4)
    times = finish_times(builders, net, system(**SIMULATED), groups=groups)
    first = finish_times(of_all_ranks(4, kind), network(["FullyConnected"], [4]), system(**SIMULATED))
    assert [times[rank] for rank in (4, 6, 1, 3)] == first


def test_a_sender_does_not_wait_for_those_below_or_above_it() -> None:
    """Check that the root of a broadcast, and a leaf of a reduce, end when they have sent."""
    slow = TraceBuilder()
    busy = slow.compute(micros=100)
    slow.collective("broadcast", 1 << 16, after=[busy])
    others = of_all_ranks(3, "broadcast")
    net = network(["FullyConnected"], [4])
    assert finish_times([*others, slow], net, system(**SIMULATED)) == [10, 3470, 1740, 100010]
    leaf = TraceBuilder()
    leaf.collective("reduce", 1 << 16)
    late_root = TraceBuilder()
    late_root.collective("reduce", 1 << 16, after=[late_root.compute(micros=100)])
    times = finish_times([late_root, leaf, leaf, leaf], net, system(**SIMULATED))
    assert times[1] == times[3] == 10
    assert times[0] > 100_000 > times[2]


def test_a_root_may_be_many_broadcasts_ahead() -> None:
    root, reader = TraceBuilder(), TraceBuilder()
    for turn in range(50):
        root.collective("broadcast", 1 << 10, after=[turn - 1] if turn else [])
        busy = reader.compute(micros=5, after=[2 * turn - 1] if turn else [])
        reader.collective("broadcast", 1 << 10, after=[busy])
    for rendezvous in (False, True):
        described = system(**SIMULATED, **{"rendezvous-protocol": rendezvous})
        times = finish_times([root, *[reader] * 6], network(["Ring"], [7]), described)
        assert times[0] == 50 * 10
        assert min(times[1:]) > 250_000


def test_a_reduce_scatter_in_blocks_is_a_reduce_scatter() -> None:
    net = network(["Ring"], [8])
    plain, blocks = (
        finish_times(of_all_ranks(8, kind, 1 << 20), net)
        for kind in ("reduce_scatter", "reduce_scatter_block")
    )
    assert plain == blocks


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_to_move_takes_no_time_but_a_barrier_does(kind: str) -> None:
    times = finish_times(of_all_ranks(4, kind, 0), network(["Ring"], [4]), system(**SIMULATED))
    assert (min(times) > 0) == (kind == "barrier")
    assert (max(times) > 0) == (kind == "barrier")


def test_a_barrier_has_no_size_to_agree_on() -> None:
    net = network(["Ring"], [4])
    builders = [of_all_ranks(1, "barrier", size)[0] for size in (0, 8, 16, 1 << 20)]
    assert finish_times(builders, net) == finish_times(of_all_ranks(4, "barrier", 0), net)


def test_a_broadcast_takes_its_recorded_time_in_the_reference_profile() -> None:
    net = network(["Ring"], [4])
    assert finish_times(of_all_ranks(4, "broadcast", micros=7), net) == [7000] * 4
    assert finish_times(of_all_ranks(4, "broadcast", micros=7), net, system(profile="corrected"))[0] < 7000


def test_a_root_outside_the_group_is_refused() -> None:
    net = network(["Ring"], [4])
    for root in (4, -1):
        with pytest.raises(TraceError, match=f"root is rank {root}, which is not a member"):
            finish_times(of_all_ranks(4, "gather", root=root), net)
    with pytest.raises(TraceError, match="barrier has no root"):
        of_all_ranks(4, "barrier", root=0)


def test_a_tree_over_some_of_the_dimensions_is_refused() -> None:
    net = network(["Ring", "Ring", "Ring"], [2, 2, 2])
    builders = of_all_ranks(8, "gather", involved_dims=[True, True, False])
    with pytest.raises(MachineError, match="gather over 2 of 3 dimensions"):
        finish_times(builders, net, system(dimensions=3))


def test_queues_that_run_either_way_do_not_matter_to_halving_doubling() -> None:
    """Run ranks whose round-robin cursors differ: halving-doubling has no direction, so they match."""
    builders = [TraceBuilder() for _ in range(6)]
    for rank in (0, 1, 2):
        builders[rank].collective("all_reduce", 1 << 16, "1")
    for builder in builders:
        builder.collective("all_reduce", 1 << 16, "9")
    groups = {"1": [0, 1, 2], "9": list(range(6))}
    for algorithm in ("halvingDoubling", "direct"):
        described = system(algorithm, **{"num-queues-per-dim": 2, "collective-optimization": "baseline"})
        net = network(["FullyConnected"], [6])
        assert min(finish_times(builders, net, described, groups=groups)) > 0


@pytest.mark.parametrize("kind", FROM_ROOT)
def test_a_child_with_a_late_request_holds_back_its_own_message_only(kind: str) -> None:
    """Check with rendezvous that the request of one child does not release the message for the other one."""
    for late in (1, 2):
        builders = [TraceBuilder() for _ in range(3)]
        for rank, builder in enumerate(builders):
            after = [builder.compute(micros=50)] if rank == late else []
            builder.collective(kind, 1 << 16, after=after)
        described = system(**SIMULATED, **{"rendezvous-protocol": True})
        times = finish_times(builders, network(["FullyConnected"], [3]), described)
        assert times[late] > 50_000
        assert times[3 - late] < 50_000
