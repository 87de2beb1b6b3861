"""The LogGOPS model against LogGOPSim on the same schedules, and against its constants by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from goal_texts import (
    direct,
    dissemination,
    incast,
    linear_all_to_all,
    rank_texts,
    ring_all_reduce,
    workload_of,
)
from hypothesis import given
from hypothesis import strategies as st
from machines import RING_2

from et_sim import simulate
from et_sim.basics.errors import MachineError, StallError, UsageError
from et_sim.machine import read_network_alone
from et_sim.trace import TraceBuilder, Workload

KIB, MIB = 1 << 10, 1 << 20
ATLAHS = {"L": 1000, "o": 200, "g": 5, "G": 0.04, "S": 0}
TOOL = {"L": 2500, "o": 1500, "g": 1000, "G": 6, "S": 65535}

# Makespans that ATLAHS's LogGOPSim (commit 8837294) gave for these schedules with these constants.
TEXTS: dict[str, Callable[[int, int], str]] = {
    "ring all-reduce": ring_all_reduce,
    "direct all-reduce": lambda ranks, size: direct(ranks, size, 2),
    "direct all-to-all": lambda ranks, size: direct(ranks, size, 1),
    "incast": incast,
}
GOLDEN = [
    ("ring all-reduce", 8, 16 * MIB, 1194894),
    ("ring all-reduce", 16, 64 * KIB, 47860),
    ("ring all-reduce", 16, MIB, 121600),
    ("ring all-reduce", 16, 16 * MIB, 1301260),
    ("direct all-reduce", 8, 64 * KIB, 11570),
    ("direct all-reduce", 8, MIB, 76668),
    ("direct all-reduce", 8, 16 * MIB, 1177684),
    ("direct all-reduce", 16, 64 * KIB, 18309),
    ("direct all-reduce", 16, MIB, 97510),
    ("direct all-to-all", 8, 64 * KIB, 5300),
    ("direct all-to-all", 16, 64 * KIB, 8663),
    ("direct all-to-all", 16, MIB, 41610),
    ("incast", 8, 64 * KIB, 5256),
    ("incast", 8, 16 * MIB, 673723),
    ("incast", 16, MIB, 46218),
    ("incast", 16, 16 * MIB, 675363),
]


OLDER = {"rules": "loggopsim"}  # before ATLAHS


def network(npus: int, constants: dict[str, Any]) -> dict[str, Any]:
    return {"loggops": {"npus": npus, **constants}}


def makespan(text: str, constants: dict[str, Any], **more: Any) -> int:
    return run(workload_of(text), constants, **more)


def run(workload: Workload, constants: dict[str, Any], **more: Any) -> int:
    result = simulate(
        workload, system={}, network=network(workload.ranks, constants), model="loggops", **more
    )
    assert result.is_complete
    return result.makespan_ns


@pytest.mark.parametrize(("kind", "ranks", "size", "nanoseconds"), GOLDEN)
@pytest.mark.parametrize("profile", ["reference", "corrected"])
def test_makespans_are_those_of_loggopsim(
    kind: str, ranks: int, size: int, nanoseconds: int, profile: str
) -> None:
    assert makespan(TEXTS[kind](ranks, size), ATLAHS, profile=profile) == nanoseconds


@pytest.mark.deep
@pytest.mark.parametrize(
    ("pattern", "ranks", "size", "nanoseconds", "older_nanoseconds"),
    [
        (linear_all_to_all, 128, 1024, 994_404, 1_478_026),
        pytest.param(linear_all_to_all, 512, 1024, 3_954_960, 5_947_018, marks=pytest.mark.exhaustive),
        (dissemination, 4096, 8, 104_672 * 12 // 16, 88_672 * 12 // 16),
    ],
)
def test_makespans_of_many_ranks_match_under_both_rules(
    pattern: Callable[[int, int], str], ranks: int, size: int, nanoseconds: int, older_nanoseconds: int
) -> None:
    """Compare with the simulators on 512 ranks, and on 65,536, which take 16 rounds of a dissemination."""
    workload = workload_of(pattern(ranks, size))
    assert run(workload, TOOL) == nanoseconds
    assert run(workload, TOOL | OLDER) == older_nanoseconds


@pytest.mark.parametrize(("ranks", "size"), [(2, 8), (5, 1), (16, 100), (32, 8), (1100, 8)])
def test_a_round_of_a_dissemination_takes_a_message_and_before_atlahs_no_gap(ranks: int, size: int) -> None:
    """Compare with LogGOPSim before ATLAHS, where 65,536 ranks take 88,672 ns for 16 rounds."""
    rounds, wire = (ranks - 1).bit_length(), (size - 1) * TOOL["G"]
    text = dissemination(ranks, size)
    a_round = 2 * TOOL["o"] + TOOL["L"] + wire
    assert makespan(text, TOOL | OLDER) == rounds * a_round
    assert makespan(text, TOOL) == rounds * (a_round + TOOL["g"])
    assert 16 * (2 * 1500 + 2500 + 7 * 6) == 88_672


@pytest.mark.parametrize(("ranks", "size"), [(2, 1024), (5, 502), (24, 1024)])
def test_before_atlahs_an_all_to_all_takes_a_message_for_each_other_rank(ranks: int, size: int) -> None:
    """Compare with 5,947,018 ns of 512 ranks. A NIC is busy for longer than a message takes to its target."""
    assert TOOL["g"] + (size - 1) * TOOL["G"] >= TOOL["o"] + TOOL["L"]
    a_message = 2 * TOOL["o"] + TOOL["L"] + (size - 1) * TOOL["G"]
    assert makespan(linear_all_to_all(ranks, size), TOOL | OLDER) == (ranks - 1) * a_message
    assert 511 * (2 * 1500 + 2500 + 1023 * 6) == 5_947_018


def test_a_builder_makes_the_same_graph_as_the_text() -> None:
    """Build an incast, and compare with a ring whose sends wait for receives."""
    builders = [TraceBuilder() for _ in range(8)]
    for peer in range(1, 8):
        builders[0].receive(peer, 64 * KIB, tag=peer - 1)
        builders[peer].send(0, 64 * KIB, tag=peer - 1)
    workload = Workload.of([build.build() for build in builders])
    result = simulate(workload, system={}, network=network(8, ATLAHS), model="loggops")
    assert result.makespan_ns == 5256


constants_of = st.fixed_dictionaries(
    {
        "L": st.integers(0, 5000),
        "o": st.integers(0, 2000),
        "g": st.integers(0, 2000),
        "G": st.integers(0, 400).map(lambda number: number / 16),
        "O": st.integers(0, 3),
        "S": st.integers(0, 5000),
    }
)


@given(constants_of, st.integers(1, 10_000))
def test_a_lone_message_takes_all_constants_once(constants: dict[str, Any], size: int) -> None:
    """Check both eager and other messages: overheads, latency, gap and bytes before they are received."""
    rest = size - 1
    text = rank_texts(2, [[f"send {size}b to 1 tag 0"], [f"recv {size}b from 0 tag 0"]])
    result = simulate(workload_of(text), system={}, network=network(2, constants), model="loggops")
    sent = constants["o"] + rest * constants["O"]
    received = sent + constants["L"] + int(rest * constants["G"]) + constants["g"] + sent
    assert result.finish_ns.tolist() == [sent if size <= constants["S"] else received, received]


@given(constants_of, st.integers(1, 10_000))
def test_before_atlahs_a_lone_message_pays_for_its_bytes_at_its_target(
    constants: dict[str, Any], size: int
) -> None:
    """Check that costs per byte do not delay the source, and that a large send ends when it is received."""
    rest, overhead = size - 1, constants["o"]
    text = rank_texts(2, [[f"send {size}b to 1 tag 0"], [f"recv {size}b from 0 tag 0"]])
    machine = {"network": network(2, constants | OLDER), "model": "loggops"}
    result = simulate(workload_of(text), system={}, **machine)
    there = overhead + constants["L"]
    sent = overhead + rest * constants["O"] if size <= constants["S"] else there
    received = there + overhead + max(rest * constants["O"], int(rest * constants["G"]))
    assert result.finish_ns.tolist() == [sent, received]


def test_before_atlahs_a_message_that_came_first_has_been_paid_for_when_its_receive_is_posted() -> None:
    body = ["c: calc 1000", "r: recv 11b from 0 tag 0", "d: calc 500", "r requires c", "d requires r"]
    text = rank_texts(2, [["send 11b to 1 tag 0"], body])
    few = {"L": 50, "o": 10, "g": 7, "G": 1, "S": 100}
    assert makespan(text, few) == 1000 + 7 + 10 + 500
    assert makespan(text, few | OLDER) == 1000 + 10 + 10 + 500  # taken in before the receive is posted
    text = rank_texts(2, [["send 11b to 1 tag 0"], body[:2] + body[3:4]])
    assert makespan(text, few | OLDER) == 1000 + 10 + 10  # posted while the message is taken in
    sender = ["send 11b to 1 tag 0", "c: calc 5000", "t: send 1b to 1 tag 1", "t requires c"]
    receiver = ["q: recv 1b from 0 tag 1", "r: recv 11b from 0 tag 0", "r requires q"]
    text = rank_texts(2, [sender, receiver])
    assert makespan(text, few) == 10 + 5000 + 10 + 50 + 17 + 17
    assert makespan(text, few | OLDER) == 10 + 5000 + 10 + 50 + 10


def test_an_empty_message_counts_as_a_byte() -> None:
    for size in (0, 1):
        text = rank_texts(2, [[f"send {size}b to 1 tag 0"], [f"recv {size}b from 0 tag 0"]])
        assert makespan(text, TOOL) == 1500 + 2500 + 1000 + 1500


def test_sends_of_a_rank_are_as_far_apart_as_its_nic_or_its_processor_needs() -> None:
    sends = [f"send 101b to 1 tag {tag}" for tag in range(4)]
    receives = [f"recv 101b from 0 tag {tag}" for tag in range(4)]
    text = rank_texts(2, [sends, receives])
    by_nic = {"L": 50, "o": 10, "g": 7, "G": 1, "S": 1000}
    assert makespan(text, by_nic) == 3 * (7 + 100) + 10 + 50 + 100 + 7 + 10
    by_processor = by_nic | {"o": 500}
    assert makespan(text, by_processor) == 500 + 50 + 100 + 4 * 507


def test_computing_and_overheads_take_turns_on_the_processor() -> None:
    """Check that a send waits for an unordered calculation, and a message for one at its target."""
    busy = rank_texts(2, [["calc 1000", "send 1b to 1 tag 0"], ["recv 1b from 0 tag 0"]])
    few = {"L": 50, "o": 10, "g": 7, "G": 1, "S": 8}
    assert makespan(busy, few) == 1000 + 10 + 50 + 17
    busy = rank_texts(2, [["send 1b to 1 tag 0"], ["calc 1000", "recv 1b from 0 tag 0"]])
    assert makespan(busy, few) == 1000 + 17


def test_a_message_without_a_receive_waits_for_it_and_takes_no_processor_before() -> None:
    body = ["c: calc 1000", "d: calc 500", "r: recv 1b from 0 tag 0", "d requires c", "r requires c"]
    text = rank_texts(2, [["send 1b to 1 tag 0"], body])
    assert makespan(text, {"L": 50, "o": 10, "g": 7, "G": 1, "S": 8}) == 1000 + 500 + 17


def test_a_large_send_is_done_when_its_message_is_received() -> None:
    sender = ["s: send 100b to 1 tag 0", "c: calc 5", "c requires s"]
    receiver = ["c: calc 1000", "r: recv 100b from 0 tag 0", "r requires c"]
    text = rank_texts(2, [sender, receiver])
    few = {"L": 50, "o": 10, "g": 7, "G": 1}
    finish = {
        most: simulate(
            workload_of(text), system={}, network=network(2, few | {"S": most}), model="loggops"
        ).finish_ns.tolist()
        for most in (99, 100)
    }
    assert finish == {99: [1017 + 5, 1017], 100: [10 + 5, 1017]}


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "all_to_all"])
@pytest.mark.parametrize("most", [0, 1 << 30])
def test_collectives_run_on_it_too(kind: str, most: int) -> None:
    builder = TraceBuilder()
    builder.collective(kind, 1 << 16)
    described = {
        "profile": "corrected",
        **{f"{name}-implementation": ["direct"] for name in ("all-reduce", "all-gather", "all-to-all")},
    }
    machine = {"system": described, "network": network(4, ATLAHS | {"S": most}), "model": "loggops"}
    result = simulate(Workload.of([builder.build()] * 4), **machine)
    assert result.is_complete
    part = (1 << 16) // (1 if kind == "all_gather" else 4)
    assert result.makespan_ns >= 200 + 1000 + int((part - 1) * 0.04) + 205


def test_endless_waits_are_explained() -> None:
    """Run with S = 0, where both ranks wait until the other one has received."""
    text = rank_texts(
        2,
        [
            [f"s: send 8b to {other} tag 0", f"r: recv 8b from {other} tag 0", "r requires s"]
            for other in (1, 0)
        ],
    )
    with pytest.raises(StallError, match="rank 0 waits for rank 1 to post the receive"):
        makespan(text, ATLAHS)
    with pytest.raises(StallError, match="rank 0 waits for rank 1 to post the receive"):
        makespan(text, ATLAHS | OLDER)
    assert makespan(text, ATLAHS | {"S": 8}) == 2 * 200 + 1000 + 5


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"npus": 2, **ATLAHS, "G": -1}, 'key "G" is -1 (allowed: a number >= 0, in ns per byte)'),
        ([8], 'key "loggops" is [8]'),
    ],
)
def test_wrong_constants_are_refused_with_their_line(given: Any, text: str, tmp_path: Path) -> None:
    with pytest.raises(MachineError) as caught:
        read_network_alone({"loggops": given})
    assert text in str(caught.value)
    file = tmp_path / "net.yml"
    file.write_text(f"\nloggops: {given}".replace("'", ""), encoding="utf-8")
    with pytest.raises(MachineError) as caught:
        read_network_alone(file)
    assert str(caught.value).startswith(f"{file}: line 2: ")


def test_constants_and_models_that_do_not_belong_together_are_refused() -> None:
    workload = workload_of(rank_texts(2, [["calc 1"], ["calc 1"]]))
    with pytest.raises(UsageError, match="needs a network file that gives its constants"):
        simulate(workload, system={}, network=RING_2, model="loggops")
    for model in ("analytical", "link", "flow"):
        with pytest.raises(UsageError, match="take --network-model loggops"):
            simulate(workload, system={}, network=network(2, ATLAHS), model=model)
    with pytest.raises(MachineError, match='keys "topology" and "loggops" exclude each other'):
        read_network_alone(RING_2 | network(2, ATLAHS))
    given = {"network": network(2, ATLAHS), "model": "loggops"}
    with pytest.raises(UsageError, match="a rendezvous of its own"):
        simulate(workload, system={"rendezvous-protocol": True}, **given)
    with pytest.raises(UsageError, match="records nodes only, not messages"):
        simulate(workload, system={}, detail="messages", **given)
    far = rank_texts(2, [[f"send {1 << 50}b to 1 tag 0"], [f"recv {1 << 50}b from 0 tag 0"]])
    with pytest.raises(MachineError, match="correct L, o, g"):
        makespan(far, TOOL | {"G": 10**5})
