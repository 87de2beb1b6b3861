"""Collectives in switches against closed forms: dimensions and graphs, every model, folded and not.

S are the bytes of a chunk, B bytes per ns of a link, L its latency, P the latency of a switch, E the endpoint
delay. Links of a test are equal unless it states otherwise.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from causes import check
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import finish_times, network, simulate, system
from msgspec.structs import replace

from et_sim.basics.errors import InputError
from et_sim.machine import read_network_alone
from et_sim.machine.model import GraphFabric
from et_sim.machine.switch_trees import SwitchTrees
from et_sim.trace import TraceBuilder

E, L, P, B = 10, 500, 100, 50
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
MODELS = ("analytical", "link", "flow")
Net = dict[str, Any]


def switch(npus: int = 8, **entry: Any) -> Net:
    """Return one dimension whose switch reduces, with links of 50 GB/s."""
    net = network(["Switch"], [npus], latency=L)
    return net | {"bandwidth": ["50GB/s"], "in-network": [{"dimension": 0, "latency": P, **entry}]}


def star(npus: int = 8, **entry: Any) -> Net:
    """Return the same as a graph."""
    graph = {"generator": "switch", "npus": npus, "bandwidth": "50GB/s", "latency": L}
    return {"graph": graph, "in-network": [{"switches": "*", "latency": P, **entry}]}


def tree(leaves: int = 4, npus: int = 2, spines: int = 1, **spine: Any) -> Net:
    """Return leaves and spines that reduce, as one logical dimension."""
    graph = {"generator": "leaf-spine", "leaves": leaves, "spines": spines, "npus-per-leaf": npus}
    marks = [{"tier": 1, "latency": P}, {"tier": 2, "latency": P, **spine}]
    more = {"in-network": marks, "logical-dimensions": [leaves * npus]}
    return {"graph": graph | {"bandwidth": "50GB/s", "latency": L}, **more}


def described(dimensions: int = 1, **keys: Any) -> Net:
    """Return a system that reduces in switches where possible; broadcasts are simulated."""
    return system(
        "inNetwork",
        dimensions,
        **{
            "all-to-all-implementation": ["direct"] * dimensions,
            "broadcast-implementation": "inNetwork",
            "corrections": {"simulated-broadcast": True},
            **keys,
        },
    )


def workload(
    ranks: int, kind: str, size: int, *, group: str = "", late: dict[int, int] | None = None
) -> list[TraceBuilder]:
    """Return one collective of all ranks, or of a group that all name; some ranks are late by these ns."""
    builders = []
    for rank in range(ranks):
        builder = TraceBuilder()
        after = [builder.compute(nanos=late[rank])] if late and rank in late else []
        root = 0 if kind == "broadcast" else None
        builder.collective(kind, size, group, root=root, after=after)
        builders.append(builder)
    return builders


def makespan(net: Net, kind: str, size: int, model: str, ranks: int = 8, **keys: Any) -> int:
    """Return the makespan of a collective of all ranks, after comparing folded and unfolded times by rank."""
    fold = [
        simulate(workload(ranks, kind, size), net, described(**keys), model=model, fold=fold)
        for fold in (True, False)
    ]
    assert fold[0].is_complete
    assert fold[0].finish_ns.tolist() == fold[1].finish_ns.tolist()
    assert fold[0].outcome.messages == fold[1].outcome.messages
    return fold[0].makespan_ns


def ns(size: float) -> int:
    """Return the serialisation time on a link."""
    return int(size / B)


@pytest.mark.parametrize("net", [switch(), pytest.param(star(), marks=pytest.mark.deep)])
@pytest.mark.parametrize(
    ("kind", "up", "down"), [("all_reduce", 8, 8), ("all_gather", 1, 7), ("reduce_scatter", 8, 1)]
)
def test_a_chunk_goes_up_and_down_once(net: Net, kind: str, up: int, down: int) -> None:
    piece = 131_072
    size = piece if kind == "all_gather" else 8 * piece
    both = ns(up * piece) + ns(down * piece)
    assert makespan(net, kind, size, "link") == E + L + P + L + both + E
    assert makespan(net, kind, size, "flow") == pytest.approx(E + L + P + L + both + E, abs=1)
    streamed = ns(max(up, down) * piece)
    assert makespan(net, kind, size, "analytical") == E + L + streamed + P + L + E


def test_the_costs_of_a_tree_are_those_of_each_member_and_differ_with_any_other_link() -> None:
    described_network = read_network_alone(tree())
    fabric, ranks = described_network.fabric, np.arange(8)
    assert isinstance(fabric, GraphFabric)
    link, no_limit = ((50.0, 500.0), (50.0, 500.0)), math.inf
    found = SwitchTrees(described_network).over(ranks)
    assert found is not None
    assert found.figures == (no_limit, 100.0, 4, (*link, (no_limit, 100.0, 2, (*link, ()))))
    for row in range(len(fabric.graph.bytes_per_ns)):
        rates = fabric.graph.bytes_per_ns.copy()
        rates[row] /= 2
        graph = replace(fabric.graph, bytes_per_ns=rates)
        found = SwitchTrees(replace(described_network, fabric=replace(fabric, graph=graph))).over(ranks)
        assert found is not None
        assert found.figures is None


@pytest.mark.parametrize("model", MODELS)
def test_a_broadcast_goes_up_from_the_root_and_down_to_all_others(model: str) -> None:
    size = 1 << 20
    result = simulate(workload(8, "broadcast", size), switch(), described(), model=model)
    copies = 1 if model == "analytical" else 2
    assert result.finish_ns.tolist() == [E + ns(size)] + [E + L + P + L + copies * ns(size) + E] * 7


@pytest.mark.deep
def test_an_all_reduce_of_a_gibibyte_on_eight_npus_at_450_gb_per_s_by_closed_form() -> None:
    size, chunks, rate = 1 << 30, 32, 450
    net = switch() | {"bandwidth": ["450GB/s"]}
    keys = {"preferred-dataset-splits": chunks, "active-chunks-per-dimension": chunks}
    chunk = size // chunks
    up_and_down = E + L + P + L + E
    assert makespan(net, "all_reduce", size, "analytical", **keys) == chunks * int(chunk / rate) + up_and_down
    assert makespan(net, "all_reduce", size, "link", **keys) == (chunks + 1) * int(chunk / rate) + up_and_down
    assert makespan(net, "all_reduce", size, "flow", **keys) == pytest.approx(
        (chunks + 1) * chunk / rate + up_and_down, abs=2
    )


@pytest.mark.parametrize("model", ["analytical", "link"])
def test_the_algorithmic_bandwidth_approaches_twice_that_of_a_ring(model: str) -> None:
    fluid = (1 << 30) / 450
    for npus in (8, 20):
        net = switch(npus) | {"bandwidth": ["450GB/s"]}
        keys = described(**{"preferred-dataset-splits": 32, "active-chunks-per-dimension": 32})
        inside = simulate(workload(npus, "all_reduce", 1 << 30), net, keys, model=model).makespan_ns
        assert fluid < inside < 1.04 * fluid
        ring = 2 * (npus - 1) / npus * fluid
        assert 0.96 * (2 - 2 / npus) < ring / inside < 2 - 2 / npus


@pytest.mark.parametrize("kind", ["all_reduce", "reduce_scatter", "all_gather", "broadcast"])
@pytest.mark.parametrize("chunks", [1, pytest.param(4, marks=pytest.mark.deep)])
def test_a_tree_of_switches_takes_every_level_by_closed_form(kind: str, chunks: int) -> None:
    """Run four leaves of two NPUs under a spine, and add up the bytes of each link, upwards and downwards."""
    s = 80_000  # bytes of a piece
    size = (s if kind == "all_gather" else 8 * s) * chunks
    carried = {
        "all_reduce": [8, 8, 8, 8],
        "reduce_scatter": [8, 8, 2, 1],
        "all_gather": [1, 2, 6, 7],
        "broadcast": [8, 8, 8, 8],
    }[kind]
    latencies = 4 * L + 2 * P + 2 * E
    keys = {"preferred-dataset-splits": chunks, "active-chunks-per-dimension": chunks}
    stages = [ns(part * s) for part in carried]
    link = sum(stages) + (chunks - 1) * max(stages) + latencies
    assert makespan(tree(), kind, size, "link", **keys) == link
    if kind != "all_gather":  # its chunks, ever larger on their way, share the last links
        assert makespan(tree(), kind, size, "flow", **keys) == pytest.approx(link, abs=2)
    assert makespan(tree(), kind, size, "analytical", **keys) == chunks * max(stages) + latencies


@pytest.mark.parametrize(
    ("kind", "model"),
    [
        pytest.param(kind, model, marks=() if (at + row) % 3 == 0 else pytest.mark.deep)
        for at, kind in enumerate(KINDS)
        for row, model in enumerate(MODELS)
    ],
)
def test_a_graph_of_one_switch_is_the_dimension(kind: str, model: str) -> None:
    keys = {"preferred-dataset-splits": 3, "active-chunks-per-dimension": 2}
    times = [
        simulate(workload(8, kind, 100_000), net, described(**keys), model=model).finish_ns.tolist()
        for net in (switch(), star())
    ]
    assert times[0] == times[1]


@pytest.mark.parametrize(("kind", "up", "down"), [("all_gather", 1, 7), ("reduce_scatter", 8, 1)])
def test_a_switch_takes_the_time_of_all_that_it_passes_on(kind: str, up: int, down: int) -> None:
    """Check that pieces of all members are joined, and that a sum is as large as the part of one."""
    piece, rate = 131_000, 10
    size = piece if kind == "all_gather" else 8 * piece
    both = ns(up * piece) + ns(down * piece)
    time = 8 * piece // rate
    assert makespan(switch(rate="10GB/s"), kind, size, "link") == E + L + P + L + both + time + E


def test_a_switch_works_on_one_chunk_after_the_other_at_its_rate() -> None:
    size, rate = 8000, 10  # bytes per ns
    net = switch(rate="10GB/s")
    round_ns = E + L + ns(size) + size // rate + P + L + ns(size) + E
    assert makespan(net, "all_reduce", size, "link") == round_ns
    keys = {"preferred-dataset-splits": 4, "active-chunks-per-dimension": 4}
    assert makespan(net, "all_reduce", 4 * size, "link", **keys) == round_ns + 3 * size // rate
    assert makespan(net, "all_reduce", 4 * size, "analytical", **keys) == (
        E + L + 4 * size // rate + P + L + E
    )


@pytest.mark.parametrize("model", MODELS)
def test_all_members_wait_for_the_last(model: str) -> None:
    builders = workload(8, "all_reduce", 5000, late={3: 70_000})
    late = finish_times(builders, switch(), described(), model=model)
    alone = makespan(switch(), "all_reduce", 5000, model)
    assert late == [70_000 + alone] * 8


def test_other_traffic_on_the_links_slows_it() -> None:
    """Rank 1 first sends a larger message, which the all-reduce meets on the links of ranks 1 and 2."""
    size, other = 100_000, 1_000_000
    alone = makespan(switch(), "all_reduce", size, "link")
    for model, later in (("analytical", 0), ("link", ns(other) - E), ("flow", ns(size))):
        builders = workload(8, "all_reduce", size)
        builders[1] = TraceBuilder()
        builders[1].send(2, other, tag=1)
        builders[1].collective("all_reduce", size)
        builders[2].receive(1, other, tag=1)
        keys = {"corrections": {"concurrent-communication": True, "eager-sends": True}}
        result = simulate(builders, switch(), described(**keys), model=model)
        expected = makespan(switch(), "all_reduce", size, model) + later
        assert result.finish_ns[3] == pytest.approx(expected, abs=model == "flow")
    assert alone == E + L + P + L + 2 * ns(size) + E


@pytest.mark.parametrize("model", MODELS)
def test_a_group_below_one_switch_uses_it_and_another_one_takes_a_ring(model: str) -> None:
    net = tree()
    groups = {"1": [0, 1], "2": [1, 2, 3]}
    inside = simulate(
        workload(8, "all_reduce", 8000, group="1")[:2] + [TraceBuilder() for _ in range(6)],
        net,
        described(),
        groups=groups,
        model=model,
    )
    once = ns(8000) if model == "analytical" else 2 * ns(8000)
    assert inside.finish_ns.tolist()[:2] == [E + L + once + P + L + E] * 2
    marked = net | {"in-network": net["in-network"][:1]}
    builders = workload(8, "all_reduce", 9000, group="2")
    builders[0] = TraceBuilder()
    builders[4:] = [TraceBuilder() for _ in range(4)]
    outside = simulate(builders, marked, described(), groups=groups, model=model)
    (notice,) = [notice for notice in outside.outcome.plan.notices if "inNetwork" in notice.text]
    assert notice.text == (
        "no switches that reduce reach all members of group 2: all_reduce there takes a ring instead of "
        "inNetwork"
    )
    ring = simulate(
        builders, marked, described(**{"all-reduce-implementation": ["ring"]}), groups=groups, model=model
    )
    assert outside.finish_ns.tolist() == ring.finish_ns.tolist()


def test_equal_groups_share_a_tree_when_they_are_folded() -> None:
    net = network(["Switch", "Ring"], [4, 4], latency=L) | {"in-network": [{"dimension": 0}]}
    builder = TraceBuilder()
    builder.collective("all_reduce", 40_000)
    keys = described(2, **{"all-reduce-implementation": ["inNetwork", "ring"]})
    keys["all-gather-implementation"] = keys["reduce-scatter-implementation"] = ["inNetwork", "ring"]
    folded, unfolded = (simulate([builder] * 16, net, keys, fold=fold) for fold in (True, False))
    assert len(folded.outcome.plan.actors) == 1
    assert len(folded.outcome.plan.switches) == 1
    assert len(unfolded.outcome.plan.switches) == 4
    assert folded.finish_ns.tolist() == unfolded.finish_ns.tolist()


@pytest.mark.deep
def test_a_regular_tree_of_switches_is_folded_level_by_level() -> None:
    for kind, actors in (("all_reduce", 1), ("all_gather", 1), ("broadcast", 24)):
        builders = workload(24, kind, 48_000)
        folded, unfolded = (simulate(builders, tree(6, 4), described(), fold=fold) for fold in (True, False))
        assert len(folded.outcome.plan.actors) == actors
        assert folded.finish_ns.tolist() == unfolded.finish_ns.tolist()
    late = workload(24, "all_reduce", 48_000, late=dict.fromkeys((7, 8, 13), 777))
    folded, unfolded = (simulate(late, tree(6, 4), described(), fold=fold) for fold in (True, False))
    assert len(folded.outcome.plan.actors) == 2
    assert len(folded.outcome.plan.switches) == 2
    assert folded.finish_ns.tolist() == unfolded.finish_ns.tolist()


def test_an_irregular_tree_is_not_folded() -> None:
    net = tree(3, 2)
    net["overrides"] = [{"between": ["leaf1", "spine0"], "bandwidth": "10GB/s"}]
    folded, unfolded = (
        simulate(workload(6, "all_reduce", 6000), net, described(), fold=fold) for fold in (True, False)
    )
    assert len(folded.outcome.plan.actors) == 6
    assert folded.finish_ns.tolist() == unfolded.finish_ns.tolist()


def test_ranks_of_two_kinds_below_a_switch_are_two_actors() -> None:
    builders = workload(8, "all_reduce", 5000, late=dict.fromkeys((0, 2, 4, 6), 333))
    folded, unfolded = (simulate(builders, switch(), described(), fold=fold) for fold in (True, False))
    assert len(folded.outcome.plan.actors) == 2
    assert folded.finish_ns.tolist() == unfolded.finish_ns.tolist()


def test_ranks_below_another_switch_than_a_late_one_do_not_wait_for_it() -> None:
    net = network(["Switch", "Ring"], [4, 2], latency=L)
    net |= {"bandwidth": ["50GB/s", "50GB/s"], "in-network": [{"dimension": 0, "latency": P}]}
    builders = [TraceBuilder() for _ in range(8)]
    for rank, builder in enumerate(builders):
        before = [builder.compute(nanos=777 if rank == 5 else 1)]
        builder.collective("all_gather", 5000, involved_dims=(True, False), after=before)
    keys = {"all-gather-implementation": ["inNetwork", "ring"]}
    folded, unfolded = (
        simulate(builders, net, system(dimensions=2, **keys), fold=fold) for fold in (True, False)
    )
    assert len(folded.outcome.plan.actors) == 3
    assert folded.finish_ns.tolist() == unfolded.finish_ns.tolist()
    assert len(set(folded.finish_ns[:4])) == 1
    assert folded.finish_ns[0] + 776 == folded.finish_ns[4]


def test_members_send_to_the_switch_of_their_own_line_along_any_dimension() -> None:
    net = network(["Ring", "Switch"], [2, 4], latency=L) | {"in-network": [{"dimension": 1, "latency": P}]}
    keys = system("ring", 2, **{"all-reduce-implementation": ["ring", "inNetwork"]})
    builders = [TraceBuilder() for _ in range(8)]
    for rank, builder in enumerate(builders):
        before = [builder.compute(nanos=777 if rank == 3 else 1)]
        builder.collective("all_reduce", 5000, involved_dims=(False, True), after=before)
    times = finish_times(builders, net, keys, fold=False)
    assert times == [times[0] + 776 * (rank % 2) for rank in range(8)]


def test_members_of_a_part_send_to_the_switches_of_both_dimensions() -> None:
    entries = {"in-network": [{"dimension": axis, "latency": P} for axis in (0, 1)]}
    keys = described(2, profile="corrected", **{"all-to-all-implementation": ["direct"] * 2})
    times = []
    for group, first, npus in (("1", 2, [2, 4]), ("", 0, [2, 2])):
        builders = [TraceBuilder() for _ in range(npus[0] * npus[1])]
        for builder in builders[first : first + 4]:
            builder.collective("all_reduce", 40_000, group)
        net = network(["Switch"] * 2, npus, latency=L) | entries
        groups = {"1": [2, 3, 4, 5]} if group else None
        times.append(finish_times(builders, net, keys, groups=groups, fold=False)[first : first + 4])
    assert times[0] == times[1]


@settings(max_examples=settings.default.max_examples // 2)
@given(st.data())
def test_folded_is_unfolded_and_the_record_of_causes_is_complete(data: st.DataObject) -> None:
    net = data.draw(st.sampled_from([switch(6), star(6), tree(3, 2), switch(6, rate="3GB/s")]))
    model = data.draw(st.sampled_from(MODELS))
    builders = [TraceBuilder() for _ in range(6)]
    for number in range(data.draw(st.integers(1, 3))):
        kind, size = data.draw(st.sampled_from(KINDS)), data.draw(st.integers(6, 20_000))
        delays = data.draw(st.lists(st.sampled_from([0, 1, 400]), min_size=6, max_size=6))
        for builder, delay in zip(builders, delays, strict=True):
            if delay:
                builder.compute(f"wait {number}", nanos=delay)
            root = data.draw(st.integers(0, 0)) if kind == "broadcast" else None
            builder.collective(kind, size, root=root)
    keys = described(
        **{
            "preferred-dataset-splits": data.draw(st.integers(1, 4)),
            "active-chunks-per-dimension": data.draw(st.integers(1, 4)),
            "rendezvous-protocol": data.draw(st.booleans()),
        }
    )
    folded = simulate(builders, net, keys, model=model)
    unfolded = simulate(builders, net, keys, model=model, fold=False, detail="path,messages,links,phases")
    assert folded.is_complete
    assert folded.finish_ns.tolist() == unfolded.finish_ns.tolist()
    check(unfolded)
    sent = unfolded.table("messages").to_pydict()
    to, back = (sent["kind"].count(kind) for kind in ("to_switch", "from_switch"))
    assert to + back == unfolded.outcome.messages
    assert all(
        peer is None for peer, kind in zip(sent["peer"], sent["kind"], strict=True) if kind == "to_switch"
    )


def test_links_carry_each_byte_once() -> None:
    size = 64_000
    result = simulate(workload(8, "all_reduce", size), switch(), described(), model="link", detail="links")
    carried = np.array(result.table("links")["bytes"].to_pylist())
    assert carried.sum() == 16 * size


@pytest.mark.parametrize(
    ("net", "keys", "sentence"),
    [
        (switch(rate=0), {}, '"rate" is 0'),
        (switch() | {"topology": ["Ring"]}, {}, "dimension 0 is a Ring, which has no switch"),
        (switch() | {"in-network": [{"dimension": 1}]}, {}, 'key "dimension" is 1, and the network has 1'),
        (switch() | {"in-network": [{"dimension": 0}] * 2}, {}, "dimension 0 is listed twice"),
        (network(["Switch"], [8]), {}, "no switch of the network reduces"),
        (star(rate="0GB/s"), {}, "must be more than zero"),
        (star() | {"in-network": [{"switches": "npu0"}]}, {}, "npu0 is a npu, and only switches reduce"),
        (star() | {"in-network": [{"switches": "nvswitch"}]}, {}, 'no device has the name "nvswitch"'),
        (star() | {"in-network": [{"latency": 5}]}, {}, "the entry selects no switches"),
        (tree() | {"in-network": [{"tier": 3}]}, {}, "no switch is in tier 3"),
        (tree() | {"in-network": [{"tier": 1, "switches": "*"}]}, {}, '"tier" and "switches" both select'),
        (tree() | {"in-network": [{"dimension": 0}]}, {}, 'key "dimension" is for networks with a list per'),
        (tree() | {"in-network": [{"tier": 1}, {"switches": "*"}]}, {}, "matches two entries"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(net: Net, keys: Net, sentence: str) -> None:
    with pytest.raises(InputError) as refused:
        finish_times(workload(8, "all_reduce", 8000), net, described(**keys))
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_all_to_all_is_refused() -> None:
    keys = described(**{"all-to-all-implementation": ["inNetwork"]})
    with pytest.raises(InputError, match="cannot do an all-to-all"):
        finish_times(workload(8, "all_to_all", 8000), switch(), keys)


def test_a_member_that_never_comes_is_named() -> None:
    builders = workload(8, "all_reduce", 8000)
    builders[5] = TraceBuilder()
    builders[5].receive(4, 100, tag=9)
    builders[5].collective("all_reduce", 8000, after=[0])
    result = simulate(builders, switch(), described())
    assert not result.is_complete
    assert "rank 5" in str(result.stall)


@pytest.mark.parametrize("routing", ["shortest", "ecmp", "ecmp-ns3", "dimension-order"])
def test_members_reach_their_switch_by_nics_with_any_routing(routing: str) -> None:
    graph = {"generator": "leaf-spine", "leaves": 2, "spines": 1, "npus-per-leaf": 4, "latency": L}
    graph |= {"bandwidth": "50GB/s", "nic": {"bandwidth": "25GB/s", "latency": 10}}
    net = {"graph": graph, "in-network": [{"switches": "*", "latency": P}], "logical-dimensions": [8]}
    size = 100_000
    latencies = 2 * 10 + 4 * L + 2 * P + 2 * E
    result = simulate(workload(8, "all_reduce", size), net | {"routing": routing}, described(), model="link")
    assert result.makespan_ns == latencies + 2 * size // 25 + 4 * ns(size)
    assert makespan(net, "all_reduce", size, "analytical") == latencies + size // 25
