"""Memory behind stages: worked examples, closed forms, a queue of single pieces, and refusals."""

from __future__ import annotations

import copy
from collections.abc import Callable
from math import ceil
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import RING_2, RING_4, algorithms, ring

import et_sim
from et_sim.basics.errors import EtSimError
from et_sim.machine import read_machine
from et_sim.memory import memory_model
from et_sim.timeline import write_run
from et_sim.trace import TraceBuilder, Workload
from et_sim.trace.files import write_trace
from et_sim.views import open_run
from et_sim.views.critical.path import CriticalPath
from et_sim.views.critical.record import PathRecord
from et_sim.views.critical.sensitivity import Sensitivities, parameters

MIB = 1 << 20
SYSTEM = {"endpoint-delay": 1, "local-mem-bw": 50} | algorithms("ring")
NIC = {"name": "nic", "count": 4, "bandwidth": 100, "latency": 50}
SWITCH = {"name": "switch", "count": 2, "bandwidth": 150, "latency": 20}
GROUPS = {"name": "memory", "count": 1, "bandwidth": 200, "latency": 100}
STAGES = [NIC, SWITCH, GROUPS]
Program = Callable[[TraceBuilder, int], Any]


def pool(*stages: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return {"memory-type": "HIERARCHICAL_POOL", "chunk": "64KiB", "stages": list(stages), **keys}


def workload(program: Program, ranks: int = 4) -> Workload:
    builders = [TraceBuilder() for _ in range(ranks)]
    for rank, build in enumerate(builders):
        program(build, rank)
    return Workload.of([build.build() for build in builders])


def simulated(program: Program, memory: dict[str, Any], ranks: int = 4, **more: Any) -> et_sim.Result:
    network = ring(ranks)
    return et_sim.simulate(workload(program, ranks), system=SYSTEM, network=network, memory=memory, **more)


def finish(program: Program, memory: dict[str, Any], ranks: int = 4, **more: Any) -> list[int]:
    times: list[int] = simulated(program, memory, ranks, **more).finish_ns.tolist()
    return times


# One request: the first of 16 pieces of 64 KiB passes all stages, and the slowest one passes 15 more.
# 65,536 B take 655 ns at 100 GB/s, 436 at 150, 327 at 200; 1 MiB takes 10,485, 6,990 and 5,242.
@pytest.mark.parametrize(
    ("slowest", "expected"),
    [
        ("nic", 327 + 100 + 436 + 20 + 10485 + 50),
        ("switch", 327 + 100 + 20971 + 20 + 655 + 50),  # 1 MiB at 50 GB/s, and then its last piece
        ("memory", 20971 + 100 + 436 + 20 + 655 + 50),
    ],
)
def test_a_load_takes_the_fill_and_the_slowest_stage(slowest: str, expected: int) -> None:
    rates = {} if slowest == "nic" else {slowest: 50}
    stages = [stage | {"bandwidth": rates.get(stage["name"], stage["bandwidth"])} for stage in STAGES]
    assert finish(lambda build, rank: build.load(MIB) if rank == 3 else None, pool(*stages))[3] == expected


def test_a_transfer_of_one_piece_is_stored_and_forwarded() -> None:
    assert finish(lambda build, rank: build.load(MIB) if rank == 0 else None, pool(*STAGES, chunk=MIB))[
        0
    ] == (5242 + 100 + 6990 + 20 + 10485 + 50)


def test_loads_and_stores_may_differ_and_share_a_unit_unless_it_is_duplex() -> None:
    def both(build: TraceBuilder, rank: int) -> None:
        build.load(1000) if rank == 0 else build.store(1000)

    stage = {"name": "ssd", "count": 1, "load": 10, "store": 5}
    assert finish(both, pool(stage, chunk=4096), 2) == [100, 300]
    assert finish(both, pool(stage | {"duplex": True}, chunk=4096), 2) == [100, 200]


def test_requests_wait_at_the_stage_that_they_share_in_the_order_of_their_arrival() -> None:
    # The memory takes 5,242 ns of each; the switches, of two ranks each, 6,990.
    times = finish(lambda build, _: build.load(MIB), pool(*STAGES))
    at_memory = [327 + 5242 * rank + 100 for rank in range(4)]  # first pieces that have passed it
    switch = [at_memory[0], max(at_memory[1], at_memory[0] + 6990), at_memory[2], at_memory[2] + 6990]
    assert times == [begin + 436 + 20 + 10485 + 50 for begin in switch]


def tandem(requests: list[int], stages: list[tuple[float, int]], chunk: int) -> list[int]:
    """Return the ends of requests, one rank after the other, simulated piece by piece."""
    free = [0.0] * len(stages)
    ends = []
    for size in requests:
        pieces = max(ceil(size / chunk), 1)
        arrives = [0.0] * pieces
        for at, (rate, latency) in enumerate(stages):
            for piece in range(pieces):
                free[at] = max(free[at], arrives[piece]) + size / pieces / rate
                arrives[piece] = free[at] + latency
        ends.append(int(arrives[-1]))
    return ends


@given(st.integers(0, 10**6))
def test_a_request_takes_the_time_of_its_pieces_one_by_one(seed: int) -> None:
    draw = Random(seed)
    stages = [(draw.choice((1, 2, 4, 8)), draw.choice((0, 7, 100))) for _ in range(draw.randint(1, 4))]
    chunk, pieces = 64 * draw.randint(1, 4), draw.randint(1, 20)
    described = [
        {"name": str(at), "count": 1, "bandwidth": rate, "latency": latency}
        for at, (rate, latency) in enumerate(stages)
    ]
    memory = pool(*described, chunk=chunk)
    model = memory_model(read_machine(system=SYSTEM, network=RING_2, memory=memory))
    build = TraceBuilder()
    build.store(chunk * pieces)
    assert model is not None
    assert model.service_ns(build.build(), np.array([0])).tolist() == tandem([chunk * pieces], stages, chunk)


def test_stores_that_come_together_are_done_as_piece_by_piece() -> None:
    """Check the closed form against a queue of single pieces, where all stages are shared."""
    stages = [(2, 7), (1, 100), (4, 0)]
    described = [
        {"name": str(at), "count": 1, "bandwidth": rate, "latency": latency}
        for at, (rate, latency) in enumerate(stages)
    ]
    sizes = [640, 1280, 64, 6400]
    times = finish(lambda build, rank: build.store(sizes[rank]), pool(*described, chunk=64))
    assert times == tandem(sizes, stages, 64)


DEGENERATE = {
    "PER_NPU_MEMORY_EXPANSION": ({}, 4),
    "PER_NODE_MEMORY_EXPANSION": ({"num-nodes": 2, "num-npus-per-node": 2}, 2),
    "MEMORY_POOL": ({}, 1),
}


@pytest.mark.parametrize("kind", DEGENERATE)
@pytest.mark.parametrize("fold", [True, False])
def test_one_stage_is_the_memory_of_the_reference(kind: str, fold: bool) -> None:
    keys, count = DEGENERATE[kind]
    stage = {"name": "all", "count": count, "bandwidth": 128, "latency": 100, "latency-occupies": True}
    given = {"memory-type": kind, "remote-mem-latency": 100, "remote-mem-bw": 128, **keys}
    for seed in range(4):

        def program(build: TraceBuilder, rank: int, seed: int = seed) -> None:
            draw, made = Random(10 * seed + rank), []
            for _ in range(6):
                after = draw.sample(made, min(len(made), draw.randint(0, 2)))
                what = draw.choice((build.load, build.store, None))
                size = draw.choice((0, 1000, 4096, 100_001))
                made.append(what(size, after=after) if what else build.compute(nanos=size, after=after))

        expected = simulated(program, given, fold=fold).timeline
        timeline = simulated(program, pool(stage), fold=fold).timeline
        for column in ("actor", "node", "ready_ns", "start_ns", "end_ns", "bytes"):
            assert timeline[column].equals(expected[column]), column


def test_without_the_latency_of_its_port_a_pool_takes_requests_sooner() -> None:
    stage = {"name": "all", "count": 1, "bandwidth": 512, "latency": 100}
    assert finish(lambda build, _: build.load(MIB), pool(stage)) == [2148, 4196, 6244, 8292]


def test_tiers_are_ways_through_the_stages_and_one_is_the_default() -> None:
    stages = [
        {"name": "pcie", "count": 4, "bandwidth": 10},
        {"name": "dram", "count": 2, "bandwidth": 20},
        {"name": "ssd", "count": 4, "load": 5, "store": 2},
    ]
    tiers = {"cpu": ["pcie", "dram"], "nvme": ["pcie", "ssd"]}
    memory = pool(*stages, chunk=1000, tiers=tiers, **{"default-tier": "nvme"})
    chosen = (0, 1, None, 0)
    times = finish(lambda build, rank: build.store(1000, tier=chosen[rank]), memory)
    assert times == [100 + 50, 100 + 500, 100 + 500, 100 + 50]


def test_a_gathered_load_leaves_the_memory_once_for_any_last_member(tmp_path: Path) -> None:
    def program(build: TraceBuilder, rank: int) -> None:
        wait = build.compute(nanos=1000 * rank)
        build.load(MIB, gather="", after=[wait])

    run = simulated(program, pool(*STAGES), detail="links")
    assert run.finish_ns.tolist() == [3000 + 327 + 100 + 436 + 20 + 10485 + 50] * 4
    carried = bytes_of_stages(run, tmp_path)
    assert carried == {"nic": 4 * MIB, "switch": 2 * MIB, "memory": MIB}


def test_shards_leave_groups_of_memory_of_their_own_and_meet_in_a_switch(tmp_path: Path) -> None:
    """Check four groups of memory that send a quarter each; the switch copies all of it to the four links."""
    stages = [
        {"name": "nic", "count": 4, "bandwidth": 128},
        {"name": "switch", "count": 1, "bandwidth": 64},
        {"name": "memory", "count": 4, "bandwidth": 8},
    ]
    run = simulated(lambda build, _: build.load(MIB, gather=""), pool(*stages), detail="links")
    assert run.finish_ns.tolist() == [MIB // 4 // 8 + 1024 + 512] * 4  # and a piece of 64 KiB after it
    assert bytes_of_stages(run, tmp_path) == {"nic": 4 * MIB, "switch": MIB, "memory": MIB}
    odd = simulated(lambda build, _: build.store(1_000_003, reduce=""), pool(*stages), detail="links")
    (tmp_path / "odd").mkdir()
    assert bytes_of_stages(odd, tmp_path / "odd")["memory"] == 1_000_003


@pytest.mark.parametrize(
    ("slowest", "expected"),
    [
        ("nic", 20971 + 50 + 436 + 20 + 327 + 100),
        ("switch", 655 + 50 + 20971 + 20 + 327 + 100),
        ("memory", 655 + 50 + 436 + 20 + 20971 + 100),
    ],
)
def test_a_reduced_store_costs_as_much_as_one_store_at_each_stage(slowest: str, expected: int) -> None:
    stages = [stage | ({"bandwidth": 50} if stage["name"] == slowest else {}) for stage in STAGES]
    memory = pool(*stages)
    assert finish(lambda build, _: build.store(MIB, reduce=""), memory) == [expected] * 4
    alone = finish(lambda build, rank: build.store(MIB) if rank == 2 else None, memory)
    assert alone[2] == expected


def test_groups_gather_by_themselves_and_in_the_order_of_their_programs() -> None:
    groups = {"1": [0, 1], "2": [2, 3]}

    def program(build: TraceBuilder, rank: int) -> None:
        first = build.load(MIB, gather=str(1 + rank // 2))
        build.load(2 * MIB, gather=str(1 + rank // 2), after=[first])

    stages = [{"name": "nic", "count": 4, "bandwidth": 128}, {"name": "switch", "count": 2, "bandwidth": 64}]
    first, second = 16384 + 512, 32768 + 512
    assert finish(program, pool(*stages), groups=groups) == [first + second] * 4


def bytes_of_stages(run: et_sim.Result, folder: Path) -> dict[str, int]:
    """Return the recorded bytes of the units of each stage."""
    write_run(run, folder / "run")
    rows = open_run(folder / "run").table("links").select(["tier", "bytes"]).to_pylist()
    results: dict[str, int] = {}
    for row in rows:
        results[row["tier"]] = results.get(row["tier"], 0) + row["bytes"]
    return results


@pytest.mark.parametrize("network_model", ["analytical", "link", "flow"])
def test_every_stage_passes_every_byte(network_model: str, tmp_path: Path) -> None:
    sizes = [100_001, 0, 65_536, 1]
    run = simulated(
        lambda build, rank: build.load(sizes[rank]), pool(*STAGES), detail="links", model=network_model
    )
    assert bytes_of_stages(run, tmp_path) == dict.fromkeys(("nic", "switch", "memory"), sum(sizes))


@given(st.integers(0, 10**6))
def test_one_request_is_never_slower_with_more_bandwidth(seed: int) -> None:
    draw = Random(seed)
    stages = [
        {"name": str(at), "count": 1, "bandwidth": draw.randint(1, 300), "latency": draw.randint(0, 50)}
        for at in range(3)
    ]
    faster = copy.deepcopy(stages)
    faster[draw.randrange(3)]["bandwidth"] += draw.randint(1, 100)
    size, times = draw.choice((1, 1000, 123_457)), []
    for described in (stages, faster):
        machine = read_machine(system=SYSTEM, network=RING_2, memory=pool(*described, chunk=4096))
        build, model = TraceBuilder(), memory_model(machine)
        build.load(size)
        assert model is not None
        times += model.service_ns(build.build(), np.array([0])).tolist()
    assert times[1] <= times[0]


def random_program(seed: int) -> Program:
    """Return a program of requests, computation and collectives, alike on half of the ranks."""

    def program(build: TraceBuilder, rank: int) -> None:
        draw, made = Random(seed), []
        for _ in range(draw.randint(2, 6)):
            after = draw.sample(made, min(len(made), draw.randint(0, 2)))
            size = draw.choice((1, 4096, 100_001))
            what = draw.randrange(6)
            if what == 0:
                made.append(build.compute(nanos=size * (1 + rank // 2), after=after))
            elif what == 1:
                made.append(build.collective("all_gather", size, after=after))
            elif what == 2:
                made.append(build.load(size, gather="", after=after))
            elif what == 3:
                made.append(build.store(size, reduce="", after=after))
            else:
                made.append((build.load if what == 4 else build.store)(size, after=after))

    return program


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("sharing", ["in-turn", "fair"])
def test_folded_runs_are_the_unfolded_ones(seed: int, sharing: str) -> None:
    own = [NIC | {"count": 8}, GROUPS | {"count": 4}]
    memory = pool(*(own if seed % 2 else STAGES), sharing=sharing)
    folded, unfolded = (finish(random_program(seed), memory, fold=fold) for fold in (True, False))
    assert folded == unfolded


def test_ranks_with_stages_of_their_own_are_folded() -> None:
    run = simulated(lambda build, _: build.load(MIB), pool(NIC, GROUPS | {"count": 8}))
    assert run.summary()["folded"]["actors"] == 1


def test_ranks_with_joint_requests_are_not_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that joint requests prevent folding: a folded rank would wait for the others for ever."""
    monkeypatch.setattr("et_sim.run.simulation.MOST_RANKS_EXPLAINED", 0)
    times = finish(lambda build, _: build.load(MIB, gather=""), pool(NIC, GROUPS | {"count": 4}))
    assert times == [327 + 100 + 10485 + 50] * 4


@pytest.mark.parametrize("seed", range(3))
def test_a_run_lists_the_effects_of_its_stages(seed: int, tmp_path: Path) -> None:
    """Make a stage a little faster, and compare the run with the stage's sensitivity."""
    program, memory = random_program(100 + seed), pool(*STAGES)
    run = simulated(program, memory, detail="path", fold=False)
    write_run(run, tmp_path / "run")
    path = CriticalPath(PathRecord(open_run(tmp_path / "run")))
    assert sum(path.by_cause().values()) == run.makespan_ns
    sensitivities, checked = Sensitivities(path), 0
    for parameter in parameters(path):
        stage = next((s for s in STAGES if parameter.name == f"bandwidth of memory stage {s['name']}"), None)
        if stage is None:
            continue
        faster = [s | ({"bandwidth": s["bandwidth"] * 1.001} if s is stage else {}) for s in STAGES]
        predicted, _ = sensitivities.evaluate(parameter, 1 / 1.001, -1.0)
        again = simulated(program, pool(*faster), fold=False)
        assert again.makespan_ns == pytest.approx(predicted, abs=sensitivities.rounding_ns(parameter, 1.0))
        checked += 1
    assert checked >= 1


def test_a_member_without_its_request_is_named() -> None:
    with pytest.raises(et_sim.StallError) as stall:
        simulated(lambda build, rank: build.load(8, gather="") if rank else None, pool(*STAGES))
    report = stall.value.report
    assert "ranks 1-3 wait for rank 0 to load with it, as members of one group" in report


BAD: list[tuple[dict[str, Any], str]] = [
    (pool(NIC | {"count": 3}), 'key "count" is 3, and 4 NPUs cannot be divided evenly among them'),
    (pool({"name": "nic", "count": 4, "load": 3}), 'key "store" is missing'),
    (pool({"name": "nic", "count": 4}), 'key "bandwidth" is missing'),
    (pool(NIC | {"load": 1, "store": 2}), 'key "bandwidth" has no effect'),
    (pool(NIC | {"bandwith": 4}), "did you mean 'bandwidth'?"),
    (pool(NIC, NIC), 'is called "nic", as is index 0'),
    (pool(*[NIC | {"name": str(at)} for at in range(65)]), 'key "stages" has 65 entries'),
    ({"memory-type": "HIERARCHICAL_POOL", "chunk": 4}, 'key "stages" is missing'),
    ({"memory-type": "HIERARCHICAL_POOL", "stages": [NIC]}, 'key "chunk" is missing'),
    (pool(NIC, **{"remote-mem-bw": 4}), 'key "remote-mem-bw" is not supported by HIERARCHICAL_POOL'),
    ({"memory-type": "MEMORY_POOL", "chunk": 4}, 'key "chunk" is not supported by MEMORY_POOL'),
    (pool(NIC, tiers={"cpu": ["nics"]}), "did you mean 'nic'?"),
    (pool(NIC, SWITCH, tiers={"cpu": ["nic"]}), 'stage "switch" is in no tier'),
    (pool(NIC, tiers={"cpu": []}), 'key "tiers" is {"cpu": []}'),
    (pool(NIC, tiers={"cpu": ["nic"]}, **{"default-tier": "cpus"}), "did you mean 'cpu'?"),
]


@pytest.mark.parametrize(("memory", "sentence"), BAD)
def test_a_pool_that_cannot_be_is_refused_in_a_sentence(memory: dict[str, Any], sentence: str) -> None:
    with pytest.raises(EtSimError) as refusal:
        finish(lambda build, _: build.load(1), memory)
    assert sentence in str(refusal.value)
    assert "<memory>" in str(refusal.value)


SERVER = {"memory-type": "MEMORY_POOL", "remote-mem-bw": 1}


@pytest.mark.parametrize(
    ("program", "memory", "sentence"),
    [
        (
            lambda build, _: build.load(1, tier=1),
            pool(NIC),
            "names a memory_tier that the memory does not",
        ),
        (lambda build, _: build.load(1, tier=-1), pool(NIC), "known: 0 (pool)"),
        (lambda build, _: build.load(1, tier=0), SERVER, "names a tier, but this memory has none"),
        (lambda build, _: build.load(1, gather=""), SERVER, "this memory has no switches"),
        (lambda build, _: build.load(1, gather="x"), pool(NIC), "group 'x' is not defined"),
        (
            lambda build, _: build.load(1, attributes={"comm_type": 0}),
            pool(NIC),
            "has a collective that the memory does not support",
        ),
        (
            lambda build, rank: build.load((1 + rank // 3) * MIB, gather=""),
            pool(NIC),
            "rank 0 loads 1 MiB from tier pool, but rank 3 loads 2 MiB from tier pool",
        ),
        (
            lambda build, rank: build.load(1, gather="") if rank else build.store(1, reduce=""),
            pool(NIC),
            "rank 0 stores 1 B to tier pool, but rank 1 loads 1 B from tier pool",
        ),
        (
            lambda build, rank: build.load(1, gather="", tier=rank % 2),
            pool(NIC, tiers={"near": ["nic"], "far": ["nic"]}),
            "rank 0 loads 1 B from tier near, but rank 1 loads 1 B from tier far",
        ),
        (lambda build, _: build.load(1 << 50), pool(NIC | {"bandwidth": 1e-300}), "takes longer than"),
    ],
)
def test_a_request_that_cannot_be_is_refused(program: Program, memory: dict[str, Any], sentence: str) -> None:
    with pytest.raises(EtSimError) as refusal:
        finish(program, memory)
    assert sentence in str(refusal.value)


def test_requests_of_groups_are_written_and_read(tmp_path: Path) -> None:
    build = TraceBuilder()
    build.load(8, gather="1", tier=2)
    build.store(9, reduce="")
    write_trace(build.build(), tmp_path / "w.0.et")
    trace = et_sim.read_workload(tmp_path / "w", 1).templates[0]
    assert trace.comm_type.tolist() == [2, 7]
    assert trace.memory_tier.tolist() == [2, 0]
    assert [trace.group_names[group] for group in trace.group] == ["1", ""]


def test_a_single_rank_makes_its_own_request(tmp_path: Path) -> None:
    build = TraceBuilder()
    build.load(MIB, gather="7")
    write_trace(build.build(), tmp_path / "w.0.et")
    result = et_sim.simulate(tmp_path / "w", system=SYSTEM, network=RING_4, memory=pool(*STAGES), alone=True)
    # One NPU has all units: pieces pass four links and two switches, and the memory is the slowest stage.
    assert result.finish_ns.tolist() == [5242 + 100 + 218 + 20 + 163 + 50]


@pytest.mark.parametrize("fold", [True, False])
def test_stages_of_their_own_are_recorded_for_all_ranks(fold: bool, tmp_path: Path) -> None:
    memory = pool(NIC, GROUPS | {"count": 8})
    run = simulated(lambda build, _: build.load(MIB), memory, fold=fold, detail="links")
    write_run(run, tmp_path / "run")
    recorded = open_run(tmp_path / "run")
    rows = recorded.table("resources").select(["stand_in", "tier"]).to_pylist()
    stand_ins = [row["stand_in"] for row in rows if row["tier"] in ("nic", "memory")]
    assert len(stand_ins) == 4 + 4  # two groups of memory of each rank are one
    carried = recorded.table("links").select(["resource", "bytes"]).to_pylist()
    assert sum(stand_ins.count(row["resource"]) * row["bytes"] for row in carried) == 2 * 4 * MIB
