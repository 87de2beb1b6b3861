"""Pools whose units are shared fairly: worked examples, and the flow network on the same links."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest
from machines import MODELS, RING_4, finish_times, network
from test_pool import (
    GROUPS,
    MIB,
    NIC,
    STAGES,
    SWITCH,
    SYSTEM,
    bytes_of_stages,
    finish,
    pool,
    random_program,
    simulated,
)

import et_sim
from et_sim.basics.errors import EtSimError
from et_sim.machine import read_machine
from et_sim.memory import memory_model
from et_sim.timeline import write_run
from et_sim.trace import TraceBuilder, Workload
from et_sim.views import open_run
from et_sim.views.critical.path import CriticalPath
from et_sim.views.critical.record import PathRecord

GIB = (1 << 30) / 1e9  # bytes per ns of a GB/s in network files


def fair(*stages: dict[str, object], **keys: object) -> dict[str, object]:
    return pool(*stages, sharing="fair", **keys)


def test_transfers_that_meet_share_and_end_together() -> None:
    # A quarter of the memory's 200 GB/s each; then a piece at all stages but the slowest, and the latencies.
    together = int(MIB / 50 + 65536 / 150 + 65536 / 200 + 170)
    assert finish(lambda build, _: build.load(MIB), fair(*STAGES)) == [together] * 4


RING = {"generator": "ring", "npus": 2, "bandwidth": "50GB/s", "latency": "500ns"}
NETWORKS: dict[str, dict[str, object]] = {
    **dict.fromkeys(MODELS, network(["Ring"], [2])),
    "packet with credits": {"graph": RING, "credits": {"flit": 64, "packet": 256}},
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_pool_and_a_network_both_settle_an_instant_at_its_end(name: str) -> None:
    """Send a message in the instant in which a load begins; its answer waits for the load."""

    def program(with_load: bool, with_messages: bool) -> list[int]:
        builders = [TraceBuilder(), TraceBuilder()]
        for rank, build in enumerate(builders):
            if with_load and rank == 0:
                build.load(1000)
            if with_messages:
                build.send(1 - rank, 1000)
                build.receive(1 - rank, 1000)
        memory = fair({"name": "a", "count": 1, "bandwidth": 10}, chunk=1024)
        model = name.split()[0]
        return finish_times(builders, NETWORKS[name], SYSTEM, memory=memory, model=model)

    load = program(True, False)[0]
    assert program(True, True) == [load + exchange for exchange in program(False, True)]


def test_unused_shares_are_left_to_others() -> None:
    """Check ranks 0 and 1, which share 60 GB/s of a switch equally; rank 2 has the memory's other 40."""
    stages = [NIC, SWITCH | {"bandwidth": 60}, GROUPS | {"bandwidth": 100}]
    memory = fair(*stages, chunk=1)
    times = finish(lambda build, rank: build.store(300_000) if rank < 3 else None, memory)
    assert times[2] == int(300_000 / 40) + 170
    # 225,000 B of each have passed when rank 2 is through; the switch still holds them up.
    assert times[:2] == [10_000 + 170] * 2


@pytest.mark.deep
def test_a_request_that_is_alone_takes_as_long_as_in_turn() -> None:
    for seed in range(20):
        draw = Random(seed)
        stages = [stage | {"bandwidth": draw.randint(1, 300)} for stage in STAGES]
        size = draw.choice((1, 1000, 123_457, 10_000_019))
        model = memory_model(read_machine(system=SYSTEM, network=RING_4, memory=pool(*stages)))
        build = TraceBuilder()
        build.load(size)
        assert model is not None
        in_turn = int(model.service_ns(build.build(), np.array([0]))[0])
        result = finish(lambda b, rank, size=size: b.load(size) if rank == 1 else None, fair(*stages))[1]
        assert abs(result - in_turn) <= 2 * len(stages) + 1  # each stage's times are cut to nanoseconds


@pytest.mark.parametrize("seed", range(8))
def test_units_are_shared_as_links_are_by_messages_of_the_flow_network(seed: int) -> None:
    """Compare stores over a link of each rank into one memory with sends to one more rank behind a switch."""
    draw, ranks = Random(seed), 5
    own, last = draw.choice((10.0, 25.0, 50.0)), draw.choice((30.0, 50.0, 100.0))
    plans = [[(draw.randrange(3000), draw.randint(1, 400_000)) for _ in range(3)] for _ in range(ranks)]
    stages = [
        {"name": "link", "count": ranks, "bandwidth": own * GIB, "latency": 500},
        {"name": "memory", "count": 1, "bandwidth": last * GIB, "latency": 500},
    ]

    def stores(build: TraceBuilder, rank: int) -> None:
        before: list[int] = []
        for wait, size in plans[rank]:
            before = [build.store(size, after=[build.compute(nanos=wait + 1, after=before)])]

    in_pool = finish(stores, fair(*stages, chunk=1), ranks)
    builders = [TraceBuilder() for _ in range(ranks + 1)]
    for rank in range(ranks):
        before: list[int] = []
        for tag, (wait, size) in enumerate(plans[rank]):
            waited = builders[rank].compute(nanos=wait + 1, after=before)
            before = [builders[rank].send(ranks, size, tag, after=[waited])]
            builders[ranks].receive(rank, size, tag)
    link = {"dimension": 0, "from": "switch", "to": ranks, "bandwidth": last, "latency": 500.0}
    network = {"topology": ["Switch"], "npus_count": [ranks + 1], "bandwidth": [own], "latency": [500.0]}
    sent = et_sim.simulate(
        Workload.of([build.build() for build in builders]),
        system=SYSTEM,
        network=network | {"links": [link]},
        model="flow",
    )
    assert np.abs(np.array(in_pool) - sent.finish_ns[:ranks]).max() <= 1


def test_loads_and_stores_part_the_time_of_a_unit() -> None:
    stage = {"name": "ssd", "count": 1, "load": 10, "store": 5}

    def both(build: TraceBuilder, rank: int) -> None:
        build.load(1000) if rank == 0 else build.store(1000)

    # Each unit of time is parted so that both have one rate: 1000 (1/10 + 1/5) = 300 ns for both.
    assert finish(both, fair(stage, chunk=1000), 2) == [300, 300]
    assert finish(both, fair(stage | {"duplex": True}, chunk=1000), 2) == [100, 200]


def test_gathered_loads_share_with_others_and_leave_the_memory_once(tmp_path: Path) -> None:
    run = simulated(lambda build, _: build.load(MIB, gather=""), fair(*STAGES), detail="links")
    assert run.finish_ns.tolist() == [int(MIB / 100 + 65536 / 150 + 65536 / 200 + 170)] * 4
    assert bytes_of_stages(run, tmp_path) == {"nic": 4 * MIB, "switch": 2 * MIB, "memory": MIB}


@pytest.mark.parametrize("seed", range(6))
def test_every_stage_passes_every_byte(seed: int, tmp_path: Path) -> None:
    draw = Random(seed)
    sizes = [draw.choice((0, 1, 65_536, 1_000_003)) for _ in range(4)]
    run = simulated(
        lambda build, rank: build.load(sizes[rank], after=[build.compute(nanos=rank * 777)]),
        fair(*STAGES),
        detail="links",
    )
    carried = bytes_of_stages(run, tmp_path)
    for stage in ("nic", "switch", "memory"):
        assert abs(carried.get(stage, 0) - sum(sizes)) <= 4  # a byte for each rounding of a part


def test_a_recorded_run_is_the_same_and_its_path_is_all_of_it(tmp_path: Path) -> None:
    program, memory = random_program(104), fair(*STAGES)
    run = simulated(program, memory, detail="path", fold=False)
    assert run.makespan_ns == simulated(program, memory).makespan_ns
    write_run(run, tmp_path / "run")
    path = CriticalPath(PathRecord(open_run(tmp_path / "run")))
    assert sum(path.by_cause().values()) == run.makespan_ns
    assert not path.record.is_exact  # the record does not hold the sharing ranks


def test_occupied_units_cannot_be_shared() -> None:
    with pytest.raises(EtSimError, match='key "latency-occupies" is not supported with "sharing": "fair"'):
        finish(lambda build, _: build.load(1), fair(NIC | {"latency-occupies": True}))
