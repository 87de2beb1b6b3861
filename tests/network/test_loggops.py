"""The LogGOPS model: what LogGOPSim says of the same schedules, what follows from the constants by hand."""

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


def network(npus: int, constants: dict[str, Any]) -> dict[str, Any]:
    return {"loggops": {"npus": npus, **constants}}


def makespan(text: str, constants: dict[str, Any], **more: Any) -> int:
    workload = workload_of(text)
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
def test_so_are_those_of_many_ranks() -> None:
    """In ATLAHS, 65,536 ranks take 104,672 ns for 16 rounds of a dissemination."""
    assert makespan(linear_all_to_all(512, 1024), TOOL) == 3_954_960
    assert makespan(dissemination(4096, 8), TOOL) * 16 == 104_672 * 12


def test_a_builder_says_the_same_as_the_text() -> None:
    """An incast, and a ring whose sends wait for receives."""
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
    """Eager or not, it is received after the overheads, the latency, the gap and its bytes."""
    rest = size - 1
    text = rank_texts(2, [[f"send {size}b to 1 tag 0"], [f"recv {size}b from 0 tag 0"]])
    result = simulate(workload_of(text), system={}, network=network(2, constants), model="loggops")
    sent = constants["o"] + rest * constants["O"]
    received = sent + constants["L"] + int(rest * constants["G"]) + constants["g"] + sent
    assert result.finish_ns.tolist() == [sent if size <= constants["S"] else received, received]


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
    """A send waits for a calculation that nothing orders; a message waits for one at its target."""
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


def test_what_waits_for_ever_is_explained() -> None:
    """With S = 0, both wait until the other one has received."""
    text = rank_texts(
        2,
        [
            [f"s: send 8b to {other} tag 0", f"r: recv 8b from {other} tag 0", "r requires s"]
            for other in (1, 0)
        ],
    )
    with pytest.raises(StallError, match="rank 0 waits for rank 1 to post the receive"):
        makespan(text, ATLAHS)
    assert makespan(text, ATLAHS | {"S": 8}) == 2 * 200 + 1000 + 5


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"npus": 2, "o": 1, "g": 1, "G": 1, "S": 1}, 'key "L" is missing'),
        ({"npus": 0, **ATLAHS}, 'key "npus" is 0 (allowed: an integer >= 1)'),
        ({"npus": 2, **ATLAHS, "L": 1.5}, 'key "L" is 1.5 (allowed: an integer >= 0, in ns)'),
        ({"npus": 2, **ATLAHS, "G": -1}, 'key "G" is -1 (allowed: a number >= 0, in ns per byte)'),
        ({"npus": 2, **ATLAHS, "s": 0}, "key \"s\" is not known (did you mean 'S'?)"),
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
    with pytest.raises(MachineError, match='"topology" stands beside "loggops"'):
        read_network_alone(RING_2 | network(2, ATLAHS))
    given = {"network": network(2, ATLAHS), "model": "loggops"}
    with pytest.raises(UsageError, match="a rendezvous of its own"):
        simulate(workload, system={"rendezvous-protocol": True}, **given)
    with pytest.raises(UsageError, match="records nodes, and neither messages"):
        simulate(workload, system={}, detail="messages", **given)
    far = rank_texts(2, [[f"send {1 << 50}b to 1 tag 0"], [f"recv {1 << 50}b from 0 tag 0"]])
    with pytest.raises(MachineError, match="correct L, o, g"):
        makespan(far, TOOL | {"G": 10**5})
