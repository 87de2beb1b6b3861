"""Links of other speeds: the cost of messages over them in both models, and exact folding with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machines import sent
from test_fold import actors_of, assert_folding_is_exact, machines, network, programs, system

from et_sim.api import run
from et_sim.basics.errors import MachineError
from et_sim.trace import TraceBuilder, Workload

MIB = 1 << 20
GIB_PER_S = 1073741824 / 1e9  # bytes per ns
ENDPOINT = 10


def serial(size: int, bandwidth: float = 50.0) -> float:
    """Return the nanoseconds that a message occupies a link."""
    return size / (bandwidth * GIB_PER_S)


def link(source: Any, target: Any, dimension: int = 0, **changes: Any) -> dict[str, Any]:
    return {"dimension": dimension, "from": source, "to": target, **changes}


def uneven(shapes: list[str], npus: list[int], *links: dict[str, Any]) -> dict[str, Any]:
    return network(shapes, npus) | {"links": list(links)}


def collective(kind: str, size: int, ranks: int) -> Workload:
    build = TraceBuilder()
    build.collective(kind, size)
    return Workload((build.build(),), np.zeros(ranks, np.int32))


def message_ns(net: dict[str, Any], source: int, target: int, size: int, **options: Any) -> int:
    """Return the arrival time of a message that is sent at once."""
    workload = sent(int(np.prod(net["npus_count"])), [(source, target, size)])
    on = system(dimensions=len(net["npus_count"]), **options.pop("on", {}))
    return int(run(workload, network=net, system=on, **options).finish_ns[target])


@pytest.mark.parametrize("model", ["analytical", "link"])
def test_only_that_link_in_that_direction_is_slower(model: str) -> None:
    net = uneven(["Ring"], [4], link(1, 2, bandwidth=10, latency=900))
    usual = int(500 + serial(MIB))
    assert message_ns(net, 1, 2, MIB, model=model) == int(900 + serial(MIB, 10))
    assert message_ns(net, 2, 1, MIB, model=model) == usual
    assert message_ns(net, 0, 1, MIB, model=model) == usual


@pytest.mark.parametrize("model", ["analytical", "link"])
def test_the_way_back_round_a_ring_has_links_of_its_own(model: str) -> None:
    net = uneven(["Ring"], [4], link(0, 3, latency="2us"))
    assert message_ns(net, 0, 3, MIB, model=model) == int(2000 + serial(MIB))
    assert message_ns(net, 3, 0, MIB, model=model) == int(500 + serial(MIB))


def test_a_longer_path_adds_latencies_and_takes_the_smallest_bandwidth() -> None:
    net = uneven(["Ring"], [8], link(2, 3, latency=900.5), link(3, 4, bandwidth=20), link(4, 5, bandwidth=30))
    assert message_ns(net, 1, 5, MIB) == int(500 + 900.5 + 500 + 500 + serial(MIB, 20))
    assert message_ns(net, 5, 1, MIB) == int(4 * 500 + serial(MIB))


def test_on_the_link_model_every_link_takes_its_own_time() -> None:
    net = uneven(["Ring"], [8], link(2, 3, latency=900.5), link(3, 4, bandwidth=20))
    first, second, third = 500 + serial(MIB), 900.5 + serial(MIB), 500 + serial(MIB, 20)
    assert message_ns(net, 1, 4, MIB, model="link") == int(first) + int(second) + int(third)


@pytest.mark.parametrize("model", ["analytical", "link"])
def test_a_direct_link_among_fully_connected_npus(model: str) -> None:
    net = uneven(["FullyConnected"], [4], link(3, 1, bandwidth=10))
    times = [message_ns(net, 3, target, MIB, model=model) for target in (0, 1, 2)]
    assert times == [int(500 + serial(MIB)), int(500 + serial(MIB, 10)), int(500 + serial(MIB))]


def test_both_links_of_a_switch_count() -> None:
    net = uneven(["Switch"], [4], link(1, "switch", latency=900), link("switch", 2, bandwidth=10))
    up, down = 900 + serial(MIB), 500 + serial(MIB, 10)
    assert message_ns(net, 1, 2, MIB) == int(900 + 500 + serial(MIB, 10))
    assert message_ns(net, 2, 1, MIB) == int(2 * 500 + serial(MIB))
    assert message_ns(net, 1, 2, MIB, model="link") == int(up) + int(down)
    assert message_ns(net, 1, 3, MIB, model="link") == int(up) + int(500 + serial(MIB))


def test_the_lowest_dimension_decides_unless_the_whole_path_is_charged() -> None:
    """Send from rank 0 over rank 1 to rank 5: the link of rank 1 is on the path, that of rank 0 is not."""
    on_the_way = uneven(["Ring", "Ring"], [4, 4], link(1, 5, dimension=1, latency=5000))
    beside = uneven(["Ring", "Ring"], [4, 4], link(0, 4, dimension=1, latency=5000))
    whole = {"corrections": {"whole-path": True}}
    hop = int(500 + serial(MIB))
    assert message_ns(on_the_way, 0, 5, MIB) == hop
    assert message_ns(on_the_way, 0, 5, MIB, on=whole) == hop + int(5000 + serial(MIB))
    assert message_ns(beside, 0, 5, MIB, on=whole) == 2 * hop


def test_an_eager_send_is_done_when_the_slowest_link_of_its_path_has_taken_it() -> None:
    net = uneven(["Ring"], [4], link(0, 1, bandwidth=10, latency=900))
    sender, receiver = TraceBuilder(), TraceBuilder()
    sender.send(1, MIB)
    receiver.receive(0, MIB)
    workload = Workload.of([build.build() for build in (sender, receiver, TraceBuilder(), TraceBuilder())])
    eager = system(corrections={"eager-sends": True})
    for model in ("analytical", "link"):
        finish = run(workload, network=net, system=eager, model=model).finish_ns[:2].tolist()
        assert finish == [int(serial(MIB, 10)), int(900 + serial(MIB, 10))]


@pytest.mark.parametrize("model", ["analytical", "link"])
@pytest.mark.parametrize("ranks", [4, 8])
def test_a_longer_latency_delays_a_ring_all_reduce_twice(ranks: int, model: str) -> None:
    """Check that of the 2 (n - 1) steps of a chunk round the ring, at most two cross one link."""
    workload, on = collective("all_reduce", 8 * MIB, ranks), system()
    even = run(workload, network=network(["Ring"], [ranks]), system=on, model=model).makespan_ns
    net = uneven(["Ring"], [ranks], link(2, 3, latency=900))
    assert run(workload, network=net, system=on, model=model).makespan_ns == even + 2 * 400


def test_a_slow_link_delays_a_ring_all_reduce_twice_without_contention() -> None:
    workload, on = collective("all_reduce", 8 * MIB, 8), system()
    even = run(workload, network=network(["Ring"], [8]), system=on).makespan_ns
    net = uneven(["Ring"], [8], link(3, 4, bandwidth=25))
    extra = int(500 + serial(MIB, 25)) - int(500 + serial(MIB))
    assert run(workload, network=net, system=on).makespan_ns == even + 2 * extra


def test_with_contention_a_slow_link_carries_all_messages_of_a_ring_in_a_row() -> None:
    """Run an all-gather of 8 ranks: 7 messages, which arrive faster than the link takes them."""
    net = uneven(["Ring"], [8], link(3, 4, bandwidth=10))
    result = run(collective("all_gather", MIB, 8), network=net, system=system(), model="link")
    slow = int(serial(MIB, 10))
    last = 6 * slow + int(500 + serial(MIB, 10))
    assert result.makespan_ns == int(result.finish_ns[4]) == ENDPOINT + last + ENDPOINT


@pytest.mark.parametrize("model", ["analytical", "link"])
def test_one_slow_link_of_a_ring_breaks_all_symmetry(model: str) -> None:
    machine = {"network": uneven(["Ring"], [6], link(0, 1, bandwidth=10)), "system": system(), "model": model}
    assert actors_of(collective("all_reduce", MIB, 6), **machine) == 6
    assert_folding_is_exact(collective("all_reduce", MIB, 6), **machine)


@pytest.mark.parametrize("model", ["analytical", "link"])
def test_equally_uneven_lines_still_fold(model: str) -> None:
    """Check that with the same slow link in every ring of a torus, a line of actors is left."""
    slow = [link(4 * row + 1, 4 * row + 2, bandwidth=10) for row in range(4)]
    machine = {
        "network": uneven(["Ring", "Ring"], [4, 4], *slow),
        "system": system(dimensions=2),
        "model": model,
    }
    assert actors_of(collective("all_reduce", MIB, 16), **machine) == 4
    assert_folding_is_exact(collective("all_reduce", MIB, 16), **machine)


@pytest.mark.parametrize("model", ["analytical", "link"])
def test_unused_uneven_links_do_not_hinder_folding(model: str) -> None:
    machine = {"network": uneven(["Ring"], [8], link(1, 0, bandwidth=10)), "system": system(), "model": model}
    build = TraceBuilder()
    build.compute("work", micros=10)
    workload = Workload((build.build(),), np.zeros(8, np.int32))
    assert actors_of(workload, **machine) == 1


def test_paths_of_several_links_are_not_folded_where_links_differ() -> None:
    build = TraceBuilder()
    build.send(2, MIB)
    build.receive(-2, MIB)
    workload = Workload((build.build(),), np.zeros(8, np.int32), relative_peers=(True,))
    even = {"network": network(["Ring"], [8]), "system": system()}
    assert actors_of(workload, **even) == 1
    machine = {"network": uneven(["Ring"], [8], link(3, 4, bandwidth=10)), "system": system()}
    assert actors_of(workload, **machine) == 8
    usual = run(workload, **even).makespan_ns
    late = run(workload, **machine).finish_ns > usual
    assert late.tolist() == [False, False, True, True, True, True, False, False]


@pytest.mark.parametrize("slow", [{"bandwidth": 1e-300}, {"latency": 2.0**52 + 1}])
def test_a_link_so_slow_that_no_message_arrives_is_refused(slow: dict[str, float]) -> None:
    net = uneven(["Ring"], [4], link(0, 1, **slow))
    with pytest.raises(MachineError, match="could take longer"):
        run(collective("all_reduce", MIB, 4), network=net, system=system())


def test_the_run_counts_links_that_differ() -> None:
    net = uneven(["Ring"], [4], link(0, 1, latency=1), link(1, 0, latency=1))
    result = run(collective("all_reduce", MIB, 4), network=net, system=system())
    assert result.summary()["uneven"] == {"ranks": 0, "links": 2, "late_ns": 0}


@st.composite
def links(draw: st.DrawFn, net: dict[str, Any]) -> list[dict[str, Any]]:
    """Draw some links of random dimensions, often the same ones in every line."""
    results: dict[tuple[Any, ...], dict[str, Any]] = {}
    npus = net["npus_count"]
    for _ in range(draw(st.integers(1, 3))):
        dimension = draw(st.integers(0, len(npus) - 1))
        stride, count = int(np.prod(npus[:dimension])), npus[dimension]
        here, shape = draw(st.integers(0, count - 1)), net["topology"][dimension]
        steps = {"Ring": (1, count - 1), "FullyConnected": range(1, count), "Switch": (0,)}[shape]
        there = (here + draw(st.sampled_from(list(steps)))) % count
        turned = draw(st.booleans())
        changes = draw(st.sampled_from(({"latency": 700}, {"bandwidth": 20}, {"bandwidth": 5, "latency": 0})))
        everywhere = draw(st.booleans())
        for rank in range(int(np.prod(npus))):
            if rank // stride % count != here:
                continue
            ends = [rank, "switch" if shape == "Switch" else rank + (there - here) * stride]
            ends = ends[::-1] if turned else ends
            results[dimension, *ends] = link(*ends, dimension=dimension, **changes)
            if not everywhere:
                break
    return list(results.values())


@given(st.data())
@settings(suppress_health_check=list(HealthCheck))
def test_random_uneven_links_fold_exactly(data: st.DataObject) -> None:
    machine = data.draw(machines())
    machine["network"]["links"] = data.draw(links(machine["network"]))
    assert_folding_is_exact(data.draw(programs(machine)), **machine)
