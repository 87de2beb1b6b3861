"""Rings in given orders: chunks use them in turn; all else is as with one ring."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import KINDS, collective, network, system

from et_sim.api import run
from et_sim.basics.errors import MachineError
from et_sim.machine import read_machine
from et_sim.plan.axes import Axes
from et_sim.timeline import write_run
from et_sim.trace import TraceBuilder, Workload
from et_sim.views import open_run

MODELS = ("analytical", "link", "flow")
CUBE_MESH = {"generator": "hybrid-cube-mesh", "bandwidth": "25GB/s", "latency": "1us"}
DOUBLE, SINGLE = [0, 3, 2, 1, 5, 6, 7, 4], [0, 1, 3, 7, 5, 4, 6, 2]
EVERY_LINK = [ring for order in (DOUBLE, DOUBLE, SINGLE) for ring in (order, [order[0], *order[:0:-1]])]


def chunks(count: int, **keys: Any) -> dict[str, Any]:
    return {"preferred-dataset-splits": count, "active-chunks-per-dimension": count, **keys}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("model", MODELS)
def test_a_ring_in_ascending_order_is_the_usual_one(kind: str, model: str) -> None:
    net, usual, same = network(["Ring"], [5]), system(**chunks(3)), [[[0, 1, 2, 3, 4]] * 2]
    results = [
        run(collective(5, kind), system={**usual, **keys}, network=net, model=model).finish_ns.tolist()
        for keys in ({}, {"rings": same})
    ]
    assert results[0] == results[1]


@given(seed=st.integers(0, 2**32), kind=st.sampled_from(KINDS), model=st.sampled_from(MODELS))
def test_a_ring_in_another_order_is_the_usual_one_on_ranks_in_that_order(
    seed: int, kind: str, model: str
) -> None:
    chance = Random(seed)
    order = chance.sample(range(5), 5)
    links = [
        {"from": f"npu{a}", "to": f"npu{b}", "bandwidth": f"{chance.randint(1, 50)}GB/s", "latency": 100}
        for a in range(5)
        for b in range(a)
    ]
    net = {"npus": 5, "links": links, "logical-dimensions": [5]}
    ordered = run(collective(5, kind), system=system(rings=[[order]]), network=net, model=model)
    net["ranks"] = [f"npu{place}" for place in order]
    plain = run(collective(5, kind), system=system(), network=net, model=model)
    assert ordered.finish_ns[order].tolist() == plain.finish_ns.tolist()


@pytest.mark.parametrize("model", MODELS)
def test_rings_over_every_nvlink_of_a_dgx_1_load_all_of_them_alike(model: str) -> None:
    """Run a chunk per ring, 14 messages of an eighth of it; one ring over every link in each direction."""
    size, net = 6 * 8 * 25_000, {"graph": CUBE_MESH}
    on = system(rings=[EVERY_LINK], **chunks(6, **{"endpoint-delay": 0, "local-mem-bw": 0}))
    result = run(collective(8, "all_reduce", size), system=on, network=net, model=model)
    assert result.makespan_ns == 14 * (1000 + 1000)


def test_messages_follow_the_orders_and_chunks_take_turns(tmp_path: Path) -> None:
    orders = [[0, 2, 1, 3], [3, 2, 1, 0], [0, 1, 3, 2]]
    on = system(rings=[orders], **chunks(6))
    result = run(
        collective(4, "all_gather", 6 << 10),
        system=on,
        network=network(["Switch"], [4]),
        detail="messages,phases,path",
        fold=False,
    )
    write_run(result, tmp_path / "run")
    table = open_run(tmp_path / "run").table("messages")
    sent = Counter(zip(*(table.column(end).to_pylist() for end in ("actor", "peer")), strict=True))
    hops = [(order[place - 1], order[place]) for order in orders for place in range(4)]
    assert sent == Counter(hops * 2 * 3)  # chunks, steps


@pytest.mark.parametrize("model", ["analytical", "flow"])
@pytest.mark.parametrize("kind", KINDS)
def test_nodes_of_the_same_rings_fold_exactly(kind: str, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    outer = {"generator": "switch", "npus": 24, "bandwidth": "12GB/s", "latency": "2us"}
    net = {"graph": {"generator": "nested", "copies": 3, "inner": CUBE_MESH, "outer": outer}}
    on = system(dimensions=2, rings=[EVERY_LINK, []], **chunks(6))
    runs = [
        run(collective(24, kind, 24 * 6 * 100), system=on, network=net, model=model, fold=fold)
        for fold in (True, False)
    ]
    assert runs[0].finish_ns.tolist() == runs[1].finish_ns.tolist()
    assert runs[0].outcome.messages == runs[1].outcome.messages
    assert len(runs[0].outcome.plan.actors) == 1


def test_a_part_of_the_system_goes_as_its_group_is_listed() -> None:
    net, groups = network(["Switch"], [4]), {"7": [0, 1, 2]}
    results = [
        run(
            Workload.of([*[part.build()] * 3, TraceBuilder().build()]), system=on, network=net, groups=groups
        ).makespan_ns
        for on in (system(), system(rings=[[[3, 1, 2, 0]]]))
        for part in [TraceBuilder()]
        if part.collective("all_reduce", 1 << 20, group="7") >= 0
    ]
    assert results[0] == results[1]


def one_after_the_other(
    order: list[tuple[str, str]], on: dict[str, Any], shape: str = "FullyConnected", model: str = "analytical"
) -> list[int]:
    """Return the end of each collective on rank 0; all ranks run them in turn, each in its own half."""
    builders = [TraceBuilder() for _ in range(8)]
    for rank, build in enumerate(builders):
        last: list[int] = []
        for kind, of in order:
            group = {"half": "low" if rank < 4 else "high", "all": ""}[of]
            last = [build.collective(kind, 1 << 20, group, after=last)]
    result = run(
        Workload.of([build.build() for build in builders]),
        system=on,
        network=network([shape], [8]),
        groups={"low": [0, 1, 2, 3], "high": [4, 5, 6, 7]},
        model=model,
    )
    assert result.is_complete
    rows = result.timeline.select(["actor", "start_ns", "end_ns"]).to_pylist()
    return sorted(row["end_ns"] for row in rows if row["actor"] == rows[0]["actor"])


@pytest.mark.parametrize("profile", ["reference", "corrected"])
@pytest.mark.parametrize("algorithm", ["ring", "direct", "halvingDoubling"])
def test_the_time_of_a_group_does_not_depend_on_collectives_before_and_after(
    algorithm: str, profile: str
) -> None:
    """Check that a listed group never uses the ring order of another axis, built before or after it."""
    lists = {"all-reduce-implementation": ["ring"]}
    on = system(algorithm, **lists, rings=[[DOUBLE]], profile=profile, **chunks(2))
    last = ("barrier", "half")  # after which ranks are not equally far
    every = [
        (kind, of)
        for kind in (KINDS if algorithm != "halvingDoubling" else KINDS[:3])
        for of in ("half", "all")
    ]
    alone = {one: one_after_the_other([one], on)[0] for one in (*every, last)}
    for seed in range(3):
        order = [*Random(seed).sample(every, len(every)), last]
        assert one_after_the_other(order, on) == list(accumulate(alone[one] for one in order))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kind", KINDS)
def test_chunks_of_a_group_go_both_ways_after_a_ring_of_all(kind: str, model: str) -> None:
    """Check that chunks go both ways; all in one direction would take about twice as long."""
    on = system(rings=[[list(range(8))] * 2], **chunks(2, **{"num-queues-per-dim": 2}))
    before, last = ("all_reduce", "all"), (kind, "half")
    first, both = one_after_the_other([before, last], on, "FullyConnected", model)
    assert both - first == one_after_the_other([last], on, "FullyConnected", model)[0]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"rings": [[[0, 1, 2, 2]]]}, "does not name each NPU from 0 to 3 once"),
        ({"rings": [[[0, 1, 2]]]}, "has a ring of 3 NPUs, and the dimension has 4"),
        ({"rings": [[], [[0, 1, 2, 3]]]}, "has 2 entries, and the network has 1 dimension"),
        ({"rings": [[]]}, "allowed: a list per network dimension"),
        ({"rings": [[0, 1, 2, 3]]}, "allowed: a list per network dimension"),
        ({"rings": "all"}, "allowed: a list per network dimension"),
        ({"rings": [[["a"]]]}, "allowed: a list per network dimension"),
    ],
)
def test_rings_that_do_not_fit_are_refused(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(MachineError, match=words):
        read_machine(system=system(**keys), network=network(["Ring"], [4]))


def test_unused_rings_are_refused_and_idle_ones_remarked() -> None:
    with pytest.raises(MachineError, match="where no collective uses a ring"):
        read_machine(system=system("direct", rings=[[[0, 1]]]), network=network(["Ring"], [2]))
    few = read_machine(system=system(rings=[[[0, 1], [1, 0]]]), network=network(["Ring"], [2]))
    assert {(warning.key, warning.text) for warning in few.warnings} >= {
        ("preferred-dataset-splits", "1, so only 1 of 2 rings are used at a time"),
    }


def test_the_row_that_stands_for_none_is_no_axis() -> None:
    axes = Axes(read_machine(system=system(), network=network(["Ring"], [4])))
    assert axes[0].members == 4
    with pytest.raises(IndexError, match="no axis -1"):
        axes[-1]
