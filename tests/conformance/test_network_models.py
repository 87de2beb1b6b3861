"""Rules for every network model: those of the registry, and two that are defined beside these tests."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import KINDS, MODELS, ROOTED, finish_times, network, of_all_ranks, sends, simulate, system
from toys.fixed_delay import DELAY_NS
from toys.shared_medium import BYTES_PER_NS

from et_sim.basics.errors import UsageError
from et_sim.network.registry import as_named, model_named
from et_sim.run.result import Result
from et_sim.timeline.writer import write_run
from et_sim.trace import TraceBuilder

TOYS = ("toys.fixed_delay", "toys.shared_medium")
ALL = (*MODELS, *TOYS)
LATENCY, BANDWIDTH = 500, 50 * 2**30 / 1e9  # of `machines.network`, in ns and bytes per ns
GRID = network(["Ring", "Switch", "FullyConnected"], [3, 2, 2])
EVERYTHING = "phases,messages,links,path"


def eager_and_some_with_rendezvous(kinds: Sequence[str]) -> list[Any]:
    """Return pairs of a collective and of rendezvous; some collectives have rendezvous only with `--deep`."""
    deep = set(kinds) - {KINDS[0], KINDS[3], ROOTED[0]}
    return [
        pytest.param(kind, rendezvous, marks=[pytest.mark.deep] * (rendezvous and kind in deep))
        for kind in kinds
        for rendezvous in (False, True)
    ]


def folded_and_not(net: dict[str, Any], model: str, kind: str, rendezvous: bool) -> list[Result]:
    """Return a folded and an unfolded run of a collective of twelve ranks, whose times are equal."""
    keys: dict[str, Any] = {"rendezvous-protocol": rendezvous, "preferred-dataset-splits": 3}
    if kind in ROOTED:
        keys["corrections"] = {"simulated-broadcast": True}
    described = system(dimensions=3, **keys)
    results = [
        simulate(of_all_ranks(12, kind), net, described, model=model, fold=fold) for fold in (True, False)
    ]
    assert results[0].is_complete
    assert (results[0].finish_ns > 0).all()
    assert results[0].finish_ns.tolist() == results[1].finish_ns.tolist()
    return results


def one_after_the_other(hops: int, size: int) -> int:
    return hops * int(LATENCY + size / BANDWIDTH)


def packets(hops: int, size: int) -> int:
    """Return the time of packets of 4096 and 62 bytes, stored and forwarded; the last may be smaller."""
    full, rest = divmod(max(size, 1) - 1, 4096)
    whole, last = (round((payload + 62) * 1000 / BANDWIDTH) for payload in (4096, rest + 1))
    serial = (full + hops - 1) * whole + last if full else hops * last
    return (serial + hops * LATENCY * 1000) // 1000


# The documented time of a lone message over a number of hops.
LONE: dict[str, Callable[[int, int], int]] = {
    "analytical": lambda hops, size: int(hops * LATENCY + size / BANDWIDTH),
    "link": one_after_the_other,
    "flow": lambda hops, size: int(hops * LATENCY + size / BANDWIDTH),
    "packet": packets,
    "toys.fixed_delay": lambda _hops, _size: DELAY_NS,
    "toys.shared_medium": lambda _hops, size: math.ceil(size / BYTES_PER_NS),
}


def exchange(ranks: int, sizes: dict[tuple[int, int], int]) -> list[TraceBuilder]:
    """Return sends of these sizes between ranks, all at once."""
    return sends(ranks, ((*ends, size) for ends, size in sizes.items()))


def arrival(model: str, shape: str, ranks: int, target: int, size: int) -> int:
    """Return the arrival time of a message from rank 0, alone in the network."""
    return finish_times(exchange(ranks, {(0, target): size}), network([shape], [ranks]), model=model)[target]


@pytest.mark.parametrize("model", ALL)
@pytest.mark.parametrize(
    ("shape", "target", "hops"), [("Ring", 2, 2), ("Switch", 3, 2), ("FullyConnected", 3, 1)]
)
def test_a_lone_message_takes_the_documented_time(model: str, shape: str, target: int, hops: int) -> None:
    for size in (1, 4096, 10**6):
        assert arrival(model, shape, 5, target, size) == LONE[model](hops, size)


@pytest.mark.parametrize("model", ALL)
@pytest.mark.parametrize("shape", ["Ring", "Switch", "FullyConnected"])
def test_an_npu_alone_needs_no_network(model: str, shape: str) -> None:
    assert finish_times(of_all_ranks(1, "all_reduce"), network([shape], [1]), model=model) == [0]


@pytest.mark.parametrize("model", ALL)
def test_a_larger_message_never_comes_earlier(model: str) -> None:
    times = [arrival(model, "Ring", 6, 3, size) for size in (0, 1, 2, 63, 64, 65, 1000, 12345, 10**7)]
    assert times == sorted(times)


@pytest.mark.parametrize("model", ALL)
@pytest.mark.parametrize("rendezvous", [False, True])
def test_all_bytes_that_are_sent_arrive_once(model: str, rendezvous: bool) -> None:
    sizes = {(0, 1): 5000, (1, 0): 1, (2, 5): 77, (11, 0): 10**6, (7, 7): 4096, (0, 2): 5000}
    described = system(dimensions=3, **{"rendezvous-protocol": rendezvous})
    result = simulate(exchange(12, sizes), GRID, described, model=model, detail=EVERYTHING, fold=False)
    assert result.is_complete
    table = result.table("messages").to_pydict()
    sent = {
        (source, target): size
        for source, target, size, kind in zip(
            *(table[n] for n in ("actor", "peer", "bytes", "kind")), strict=True
        )
        if kind == "send"
    }
    assert sent == sizes
    assert all(time is not None for time in table["arrived_ns"])


@pytest.mark.in_turn(days=2)
@pytest.mark.parametrize("model", ALL)
@pytest.mark.parametrize(("kind", "rendezvous"), eager_and_some_with_rendezvous(KINDS + ROOTED))
def test_every_collective_completes_and_folding_changes_nothing(
    model: str, kind: str, rendezvous: bool
) -> None:
    folded, unfolded = folded_and_not(GRID, model, kind, rendezvous)
    assert folded.outcome.messages == unfolded.outcome.messages


@pytest.mark.parametrize("algorithm", ["ring", "direct", "halvingDoubling", "doubleBinaryTree", "oneRing"])
@pytest.mark.parametrize("model", TOYS)
def test_a_model_from_outside_runs_every_algorithm(model: str, algorithm: str) -> None:
    described = system(algorithm, **{"preferred-dataset-splits": 4, "active-chunks-per-dimension": 2})
    times = finish_times(of_all_ranks(8, "all_reduce"), network(["Ring"], [8]), described, model=model)
    assert min(times) > 0


def test_with_a_fixed_delay_all_ranks_are_one_actor() -> None:
    result = simulate(of_all_ranks(12, "all_reduce"), GRID, model="toys.fixed_delay")
    assert len(result.outcome.plan.actors) == 1


def test_on_a_shared_medium_messages_slow_each_other() -> None:
    """Send three equal messages, and a fourth as long as the others together, which ends alone."""
    size = 10**6
    builders = exchange(8, {(0, 4): size, (1, 5): size, (2, 6): size, (3, 7): 3 * size})
    times = finish_times(builders, network(["Ring"], [8]), model="toys.shared_medium")
    assert times[4:7] == pytest.approx([4 * size / BYTES_PER_NS] * 3, abs=4)
    assert times[7] == pytest.approx(6 * size / BYTES_PER_NS, abs=8)


@pytest.mark.parametrize("model", ALL)
def test_a_run_repeats_to_the_byte(model: str, tmp_path: Path) -> None:
    def written(name: str) -> dict[str, bytes]:
        described = system(dimensions=3)
        result = simulate(of_all_ranks(12, "all_reduce"), GRID, described, model=model, detail=EVERYTHING)
        write_run(result, tmp_path / name)
        return {path.name: path.read_bytes() for path in sorted((tmp_path / name).iterdir())}

    assert written("one") == written("two")


@pytest.mark.parametrize("model", ALL)
def test_the_record_of_causes_reaches_the_end_of_the_run(model: str) -> None:
    result = simulate(of_all_ranks(12, "all_reduce"), GRID, model=model, detail="path", fold=False)
    causal_events = np.concatenate(list(_causal_events(result)))
    assert causal_events["end_ns"].max() == result.makespan_ns
    needed = causal_events["critical_parent"][1:]
    assert (causal_events["end_ns"][needed[needed >= 0]] <= causal_events["end_ns"][1:][needed >= 0]).all()


def _causal_events(result: Result) -> Any:
    assert result.causal_events is not None
    return result.causal_events.blocks()


@pytest.mark.deep
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(0, 9), st.integers(1, 99)), min_size=1
    )
)
def test_over_single_links_the_models_are_ordered(messages: list[tuple[int, int, int, int]]) -> None:
    """Check that sharing and queueing keep a link busy equally long, and that no contention takes less."""
    builders = [TraceBuilder() for _ in range(4)]
    for tag, (source, ahead, micros, size) in enumerate(messages):
        target = (source + ahead) % 4
        after = [builders[source].compute(micros=micros, concurrent=True)] if micros else []
        builders[source].send(target, 1000 * size, tag=tag, after=after)
        builders[target].receive(source, 1000 * size, tag=tag)
    net = {"graph": {"generator": "fully-connected", "npus": 4, "bandwidth": "1GB/s", "latency": 500}}
    ends = [
        simulate(builders, net, system(), model=model).makespan_ns for model in ("analytical", "flow", "link")
    ]
    assert ends[0] <= ends[1] == ends[2]


def test_a_model_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match="not known"):
        model_named("lynk")
    with pytest.raises(UsageError, match="cannot be imported"):
        model_named(as_named("no.such.module"))
    with pytest.raises(UsageError, match="is not a network model"):
        model_named(as_named("os.path"))
