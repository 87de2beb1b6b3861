"""Collectives of a library with late ranks: the ends of ranks, and the lead of the others."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import numpy as np
import pytest
from machines import collective, ring, system

import et_sim
from et_sim.basics.errors import MachineError
from et_sim.machine.presets import preset
from et_sim.run.result import Result

MIB = 1 << 20
DELAY_NS = 10_000_000
RINGS = ("all_reduce", "all_gather", "reduce_scatter")
UNLIMITED: dict[str, Any] = {"slots": 65536, "slot-simple": "1GiB", "slot-ll128": "1GiB", "slot-ll": "1GiB"}
DIRECT: dict[str, Any] = {"direct": True}
Late = Mapping[int, int]  # rank -> microseconds


def described(machine: str, late: Late, **buffers: Any) -> dict[str, Any]:
    """Return a preset with other buffers and late ranks, as arguments of a run."""
    found = preset(machine)
    keys = dict(found.system)
    keys["library"] = dict(keys["library"]) | ({"buffers": buffers} if buffers else {})
    if late:
        keys["stragglers"] = [{"ranks": str(rank), "delay": f"{delay}us"} for rank, delay in late.items()]
    return {"system": keys, "network": found.network}


def together(machine: str, kind: str, size: int, late: Late, model: str = "flow", **buffers: Any) -> Result:
    """Run one collective of all ranks, each of them by itself."""
    workload = collective(preset(machine).npus, kind, size)
    options: dict[str, Any] = {"model": model, "fold": False, "detail": "messages"}
    return et_sim.simulate(workload, **described(machine, late, **buffers), **options)


def messages_of(result: Result) -> dict[str, Any]:
    table = result.table("messages")
    names = ("actor", "peer", "dimension", "sent_ns", "start_ns", "left_ns", "bytes")
    return {name: table[name].to_numpy() for name in names}


def own_times(result: Result) -> tuple[Any, Any]:
    """Return when each rank began and ended its part of a run's one collective."""
    rows = result.timeline.sort_by("actor")
    return rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()


def random_late(draw: Random, ranks: int, most_us: int) -> dict[int, int]:
    return {rank: draw.randint(1, most_us) for rank in draw.sample(range(ranks), draw.randint(1, 3))}


@pytest.mark.parametrize("kind", RINGS)
def test_a_ring_without_buffers_ends_its_whole_time_after_the_last_rank(kind: str) -> None:
    alone = together("l40s-node:8", kind, 128 * MIB, {}, **DIRECT)
    late = together("l40s-node:8", kind, 128 * MIB, {5: DELAY_NS // 1000}, **DIRECT)
    assert late.finish_ns.tolist() == [DELAY_NS + alone.makespan_ns] * 8


@pytest.mark.parametrize("buffers", [{"slots": 8}, UNLIMITED], ids=["finite", "unlimited"])
@pytest.mark.parametrize("kind", RINGS)
def test_the_rank_a_ring_of_steps_behind_a_late_one_ends_last_with_any_buffers(
    kind: str, buffers: dict[str, Any]
) -> None:
    """Check the rank whose last step depends on the first one of the late rank."""
    machine = "h100-dgx:8" if kind == "reduce_scatter" else "l40s-node:8"
    alone = together(machine, kind, 128 * MIB, {}, **buffers)
    late = together(machine, kind, 128 * MIB, {5: DELAY_NS // 1000}, **buffers)
    steps = 14 if kind == "all_reduce" else 7
    assert late.finish_ns[(5 + steps) % 8] == late.makespan_ns == DELAY_NS + alone.makespan_ns


@pytest.mark.parametrize("slots", [1, 2, 4, 8, 16])
def test_more_buffers_never_make_a_late_collective_slower(slots: int) -> None:
    fewer, more = (
        together("h100-dgx:8", "reduce_scatter", 128 * MIB, {5: 10_000}, slots=count).finish_ns
        for count in (slots, 2 * slots)
    )
    assert (more <= fewer).all()


MACHINES = ("h100-dgx:8", "h100-dgx:16", "mi300x-node:8", "l40s-node:8", "a100-dgx-80gb:16")


def ports_of(machine: str) -> list[float]:
    """Return the bytes per ns that leave a rank along each dimension."""
    network = preset(machine).network
    rows = zip(network["topology"], network["npus_count"], network["bandwidth"], strict=True)
    return [
        bytes_per_ns(speed) * (npus - 1 if shape == "FullyConnected" else 1) for shape, npus, speed in rows
    ]


def bytes_per_ns(speed: str) -> float:
    return float(speed[:-4]) / 8 if speed.endswith("Gbps") else float(speed[:-4])


def random_run(machine: str, model: str, seed: int) -> tuple[Result, dict[int, int]]:
    """Run a collective of random kind and size with random late ranks."""
    draw = Random(f"{machine} {model} {seed}")
    kind, size = (
        draw.choice((*RINGS, "all_to_all", "broadcast")),
        draw.choice((MIB, 16 * MIB, 128 * MIB, 1 << 30)),
    )
    late = random_late(draw, preset(machine).npus, 5000)
    buffers = draw.choice(({}, {}, {"slots": 1}, DIRECT, UNLIMITED))
    return together(machine, kind, size, late, model, **buffers), late


@pytest.mark.parametrize("model", ["flow", "link", "analytical"])
@pytest.mark.parametrize("machine", MACHINES)
def test_parts_end_when_their_bytes_have_left_through_their_ports(machine: str, model: str) -> None:
    """Check that a part, and any window of it, is no shorter than the transfers of its rank meanwhile."""
    for seed in range(3):
        result, _ = random_run(machine, model, seed)
        sent, (begin, end) = messages_of(result), own_times(result)
        for rank in range(preset(machine).npus):
            mine = sent["actor"] == rank
            assert end[rank] >= sent["left_ns"][mine].max(initial=0)
            for dimension, port in enumerate(ports_of(machine)):
                along = mine & (sent["dimension"] == dimension)
                first, last, size = (sent[name][along] for name in ("start_ns", "left_ns", "bytes"))
                assert end[rank] - begin[rank] >= size.sum() / port - len(size)
                is_within = (first[None, :, None] <= first) & (last <= last[:, None, None])
                length = last[:, None] - first
                assert ((is_within * size).sum(axis=2) <= port * (length + len(size)))[length > 0].all()


def room_of(choice: str, *, is_between: bool) -> int:
    """Return the bytes that NCCL's default buffers for one connection hold."""
    if "all pairs" in choice:
        return 8 * 2 * (128 << 10) if is_between else 8 * 32 * (512 << 10)
    way, channels = choice.removesuffix(" channels").split(", ")
    algorithm, protocol = way.split()
    if algorithm == "nvls":
        return 0
    return 8 * int(channels) * {"LL": 64 << 10, "LL128": 600 << 10, "Simple": 512 << 10}[protocol]


@pytest.mark.parametrize("model", ["flow", "link", "analytical"])
@pytest.mark.parametrize("machine", MACHINES)
def test_no_rank_runs_ahead_of_a_late_one_by_more_than_its_buffers(machine: str, model: str) -> None:
    for seed in range(3):
        draw = Random(f"{machine} {model} {seed}")
        late = random_late(draw, preset(machine).npus, 5000)
        kind, size = draw.choice((*RINGS, "all_to_all")), draw.choice((16 * MIB, 128 * MIB, 1 << 30))
        result = together(machine, kind, size, late, model)
        [choice] = result.outcome.plan.library_choices
        sent = messages_of(result)
        for rank, delay in late.items():
            early = (sent["peer"] == rank) & (sent["sent_ns"] < delay * 1000)
            for source in np.unique(sent["actor"][early]):
                mine = early & (sent["actor"] == source)
                is_between = bool(sent["dimension"][mine][0])
                assert sent["bytes"][mine].sum() <= room_of(choice, is_between=is_between)


@pytest.mark.parametrize("algorithm", ["ring", "direct", "halvingDoubling", "doubleBinaryTree"])
def test_parts_by_native_algorithms_end_when_sent_in_the_corrected_profile_alone(algorithm: str) -> None:
    """Check that in the reference, parts end when sent only by chance, if all is sent at once."""
    for profile in ("corrected", "reference"):
        keys: dict[str, Any] = {"profile": profile, "stragglers": [{"ranks": "3", "delay": "10ms"}]}
        result = et_sim.simulate(
            collective(8, "all_reduce", 16 * MIB),
            system=system(algorithm, **keys),
            network=ring(8),
            model="link",
            fold=False,
            detail="messages",
        )
        sent, (_, end) = messages_of(result), own_times(result)
        left = np.zeros(8, np.int64)
        np.maximum.at(left, sent["actor"], sent["left_ns"])
        assert (end >= left).all() == (profile == "corrected" or algorithm == "direct")


@pytest.mark.parametrize(
    ("buffers", "why"),
    [
        ({"slots": -1}, "slots"),
        ({"slot-simple": "many"}, "slot-simple"),
        ({"send-slot-within": -4}, "send-slot-within"),
        ({"send-channels-between": 1.5}, "send-channels-between"),
        ({"direct": "perhaps"}, "direct"),
        ({"slot": 1}, '"slot" is not known'),
    ],
)
def test_wrong_buffers_are_refused_by_name(buffers: dict[str, Any], why: str) -> None:
    with pytest.raises(MachineError) as caught:
        together("h100-dgx:8", "all_gather", MIB, {}, **buffers)
    assert "buffers" in str(caught.value)
    assert why in str(caught.value)
