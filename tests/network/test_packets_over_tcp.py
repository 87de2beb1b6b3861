"""TCP on the packet model: the time of a lone message, losses and retransmissions, and refusals."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import algorithms, sends
from machines import sent as messages_of

from et_sim import TraceBuilder, Workload, simulate
from et_sim.basics.errors import MachineError
from et_sim.machine import read_machine
from et_sim.network.packet.tcp.acknowledgements import react_to_mark
from et_sim.network.packet.tcp.controls import cubic, dctcp, newreno, reno
from et_sim.network.packet.tcp.records import SMOOTH
from et_sim.run.result import Result

SYSTEM = {
    "endpoint-delay": 0,
    "local-mem-bw": 0,
    "profile": "corrected",
    "all-reduce-implementation": ["direct"],
    "all-to-all-implementation": ["direct"],
}
PAYLOAD, HEADER, ANSWER, OPENING = 1448, 54, 54, 58
LATENCY_PS, PS_PER_BYTE = 500_000, 80
Message = tuple[int, int, int]


def star(npus: int = 4, tcp: dict[str, Any] | None = None, **protocol: Any) -> dict[str, Any]:
    """Return hosts of 100 Gb/s behind a switch."""
    graph = {"generator": "star", "npus": npus, "bandwidth": "100Gbps", "latency": "500ns"}
    return {"graph": graph, "protocol": {"preset": "tcp", "tcp": tcp or {}} | protocol}


def sent(network: dict[str, Any], messages: list[Message], ranks: int = 4) -> Result:
    """Run messages (source, target, bytes), each rank's one after the other."""
    return simulate(messages_of(ranks, messages), system=SYSTEM, network=network, model="packet")


def incast(network: dict[str, Any], size: int, ranks: int) -> Result:
    """Run messages of all other ranks to rank 0."""
    return sent(network, [(rank, 0, size) for rank in range(1, ranks)], ranks)


def state(result: Result) -> Any:
    """Return the kernel's figures."""
    return result.outcome.run.network.state[0]


def tables(result: Result) -> Any:
    """Return the tables of TCP."""
    return result.outcome.run.network.transport


def lone_ps(size: int, window: int = 10) -> int:
    """Return the time of slow start over two links: each acknowledgement releases two more packets."""
    sizes = [PAYLOAD] * (size // PAYLOAD) + ([size % PAYLOAD] if size % PAYLOAD else [])
    free = [0, 0]
    acknowledged: list[int] = []
    arrives = 0
    for number, payload in enumerate(sizes):
        length = (payload + HEADER) * PS_PER_BYTE
        wanted = max(0, -(-(number + 1 - window) // 2))
        left = max(free[0], acknowledged[wanted - 1] if wanted else 0) + length
        passed = max(free[1], left + LATENCY_PS) + length
        free = [left, passed]
        arrives = passed + LATENCY_PS
        acknowledged.append(arrives + 2 * (ANSWER * PS_PER_BYTE + LATENCY_PS))
    return arrives


@pytest.mark.parametrize("size", [1, 1448, 1449, 14480, 14481, 50_000, 200_000])
def test_a_lone_message_takes_its_rounds_of_slow_start(size: int) -> None:
    assert sent(star(), [(0, 1, size)]).makespan_ns == lone_ps(size) // 1000


def test_a_handshake_takes_a_round_trip() -> None:
    opening = 4 * (OPENING * PS_PER_BYTE + LATENCY_PS)
    size = 100_000
    for keys in ({"per-message": True}, {"handshake": True}):
        makespan_ns = sent(star(tcp=keys), [(0, 1, size)]).makespan_ns
        wanted = (opening + ANSWER * PS_PER_BYTE + lone_ps(size)) / 1000  # the sender has received the answer
        assert makespan_ns == int(wanted)


def test_a_connection_of_a_pair_keeps_its_window_and_one_of_a_message_does_not() -> None:
    twice = [(0, 1, 100_000)] * 2
    kept = sent(star(tcp={"handshake": True}), twice).makespan_ns
    anew = sent(star(tcp={"per-message": True}), twice).makespan_ns
    assert kept < anew


def test_injection_and_copying_delay_messages_at_their_ends() -> None:
    size = 10_000
    alone = sent(star(), [(0, 1, size)]).makespan_ns
    injected = sent(star(tcp={"injection-latency": "3us"}), [(0, 1, size)]).makespan_ns
    copied = sent(star(tcp={"copying": 0.25}), [(0, 1, size)]).makespan_ns
    assert (injected, copied) == (alone + 3000, alone + 2 * size // 4)


def test_a_window_limits_bytes_in_flight() -> None:
    narrow = sent(star(tcp={"window": 10_000}), [(0, 1, 10**6)])
    wide = sent(star(), [(0, 1, 10**6)])
    assert narrow.makespan_ns > 2 * wide.makespan_ns
    assert tables(narrow).connections["window"].max() > 10_000


@pytest.mark.parametrize("kind", ["all_reduce", "all_to_all"])
def test_delayed_acknowledgements_are_fewer(kind: str) -> None:
    builder = TraceBuilder()
    builder.collective(kind, 1 << 18)
    workload = Workload.of([builder.build()] * 4)
    each, second = (
        simulate(workload, system=SYSTEM, network=star(tcp={"acknowledge-after": after}), model="packet")
        for after in (1, 2)
    )
    assert state(each).returned == state(each).sent == state(second).sent
    assert state(second).returned < 0.7 * state(each).returned


def test_small_messages_that_share_a_packet_all_arrive() -> None:
    workload = Workload.of([builder.build() for builder in sends(2, [(0, 1, 100)] * 9)])
    described = SYSTEM | {"corrections": {"concurrent-communication": True}}
    network = star(2, tcp={"copying": 10})
    assert simulate(workload, system=described, network=network, model="packet").is_complete


LOSSES = st.fixed_dictionaries(
    {
        "congestion-control": st.sampled_from(["newreno", "reno", "cubic", "dctcp"]),
        "sack": st.booleans(),
        "per-message": st.booleans(),
        "acknowledge-after": st.integers(1, 3),
        "instant-acknowledgements": st.booleans(),
        "full-packets": st.booleans(),
        "turns": st.booleans(),
        "first-window": st.integers(1, 30),
        "least-timeout": st.sampled_from(["10us", "1ms"]),
        "first-timeout": st.just("1ms"),
        "timeout-interval": st.sampled_from([0, "1ms"]),
    }
)


@given(
    tcp=LOSSES,
    queue=st.integers(1, 8),
    chance=st.sampled_from([0.0, 0.05, 0.3]),
    seed=st.integers(0, 9),
    messages=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 60_000)), min_size=1, max_size=8
    ),
)
def test_every_message_arrives_in_spite_of_drops(
    tcp: dict[str, Any], queue: int, chance: float, seed: int, messages: list[Message]
) -> None:
    lossy = {"queue-packets": queue, "random-drop-from": 0, "random-drop": chance, "seed": seed}
    result = sent(star(tcp=tcp, **lossy), messages)
    assert result.is_complete
    outcome, network = state(result), result.outcome.run.network
    if outcome.lost == 0 and tcp["least-timeout"] == "1ms" and tcp["acknowledge-after"] == 1:
        assert network.flows["retransmitted"].sum() == 0
    in_flight = sum(int(port.packets) for port in network.ports)
    assert in_flight <= queue * len(network.ports)


def test_losses_are_repaired_without_timeouts_if_enough_arrives_behind_them() -> None:
    """Check with SACK that each lost packet is sent once more."""
    result = incast(star(4, **{"queue-packets": 40}), 400_000, 4)
    assert result.is_complete
    assert state(result).lost > 0
    assert result.summary()["packets"]["timeouts"] == 0
    assert result.outcome.run.network.flows["retransmitted"].sum() == state(result).lost
    assert result.makespan_ns < 1.1 * 3 * 400_000 * 8 / 100


def test_a_loss_at_the_end_waits_for_the_timer() -> None:
    network = star(4, tcp={"least-timeout": "2ms"}, **{"queue-packets": 10})
    result = incast(network, 14_000, 4)
    assert result.summary()["packets"]["timeouts"] > 0
    assert 2_000_000 < result.makespan_ns < 2_100_000


def test_a_shared_buffer_gives_each_queue_a_part_of_its_free_space() -> None:
    size = 200_000
    for share in (0.125, 1):
        result = incast(star(8, buffer=size, **{"queue-share": share}), 100_000, 8)
        deepest = int(result.outcome.run.network.ports["deepest"].max())
        most = size * share / (1 + share)
        assert abs(deepest - most) < 2 * (PAYLOAD + HEADER)


def marked_once(control: ModuleType, window: int, flight: int) -> list[int]:
    """Return windows, in packets, after a mark, a second one in the same window, and one in the next."""
    connection = SimpleNamespace(
        acknowledged=1, sent=1 + flight * PAYLOAD, highest=1 + flight * PAYLOAD, reduced_to=0, state=SMOOTH
    )
    connection.lost_to = connection.again = connection.known = connection.largest = 0
    connection.window, connection.alpha = window * PAYLOAD, 0.5
    rules = SimpleNamespace(sack=1, payload=PAYLOAD)
    network = SimpleNamespace(
        transport=SimpleNamespace(connections=[connection], rules=[rules]),
        control=control.Senders([rules], [connection]),
    )
    results = []
    for position in (1, 1 + flight * PAYLOAD // 2, 2 + flight * PAYLOAD):
        connection.acknowledged = position
        connection.sent = connection.highest = position + flight * PAYLOAD if results else connection.highest
        react_to_mark(network, 0)
        assert connection.window == connection.threshold
        results.append(connection.window // PAYLOAD)
    return results


@pytest.mark.parametrize(
    ("control", "windows"),
    [
        (newreno, [15, 15, 15]),  # half of the packets under way
        (reno, [20, 20, 10]),  # half of the window
        (cubic, [28, 28, 19]),  # 0.7 of it
        (dctcp, [30, 30, 22]),  # a half of alpha less
    ],
)
def test_a_mark_shrinks_the_window_once_for_all_that_is_under_way(
    control: ModuleType, windows: list[int]
) -> None:
    assert marked_once(control, window=40, flight=30) == windows


@pytest.mark.parametrize(("size", "largest"), [(99, 84), (100, 100), (101, 101)])
def test_a_window_that_had_reached_its_plateau_releases_no_bandwidth(size: int, largest: int) -> None:
    """Check RFC 8312, 4.6: only a window that is smaller than before releases bandwidth for others."""
    connection = SimpleNamespace(window=1000 * size, largest=100, epoch_ps=5)
    rules = SimpleNamespace(payload=1000)
    network = SimpleNamespace(
        transport=SimpleNamespace(connections=[connection], rules=[rules]),
        control=SimpleNamespace(senders=[connection], rules=[rules]),
    )
    assert cubic.reduced(network, 0, 0) == int(0.7 * size) * 1000
    assert connection.largest == largest


@pytest.mark.deep
@pytest.mark.parametrize(
    ("control", "depth", "time"),
    [("newreno", 0.5, 1.2), ("reno", 0.5, 1.2), ("cubic", 0.5, 1.2), ("dctcp", 0.25, 1.05)],
)
def test_marks_keep_queues_short_without_retransmission(control: str, depth: float, time: float) -> None:
    marking = [{"bandwidth": "100Gbps", "from": 30_000, "to": 30_000, "probability": 1}]
    tcp = {"congestion-control": control}
    marked, other = (incast(star(4, tcp=tcp, **keys), 10**6, 4) for keys in ({"marking": marking}, {}))
    assert marked.summary()["packets"]["marked"] > 0 == other.summary()["packets"]["marked"]
    assert state(marked).lost == state(marked).resent == 0
    deepest = [int(result.outcome.run.network.ports["deepest"].max()) for result in (marked, other)]
    assert deepest[0] < depth * deepest[1]
    assert marked.makespan_ns < time * other.makespan_ns


@pytest.mark.parametrize("algorithm", ["ring", "direct"])
def test_the_profile_that_counts_parts_of_nanoseconds_ends_a_chunk_in_the_same_one(
    algorithm: str, tmp_path: Path
) -> None:
    layers = tmp_path / "layers.txt"
    layers.write_text("MICRO 1  only -1  0 NONE 0  0 NONE 0  0 ALLREDUCE 16384  0", encoding="utf-8")
    system = {"scheduling-policy": "FIFO", "endpoint-delay": 0} | algorithms(algorithm)
    old, new = (
        simulate(layers, system=system | {"profile": profile}, network=star(), model="packet").makespan_ns
        for profile in ("astra-1.0", "corrected")
    )
    steps = 6 if algorithm == "ring" else 2
    assert 0 <= new - old <= steps


@pytest.mark.deep
def test_seeds_repeat() -> None:
    def run(seed: int) -> tuple[int, int]:
        lossy = {"random-drop-from": 5000, "random-drop": 0.02, "seed": seed}
        result = incast(star(4, tcp={"least-timeout": "100us"}, **lossy), 200_000, 4)
        return result.makespan_ns, int(state(result).lost)

    assert run(1) == run(1)
    assert len({run(seed) for seed in range(4)}) > 1


@pytest.mark.parametrize(
    ("protocol", "words"),
    [
        ({"tcp": {"sak": True}}, "is not known"),
        ({"tcp": {"congestion-control": "vegas"}}, "newreno, reno, cubic or dctcp"),
        ({"tcp": {"first-window": 0}}, "an integer >= 1"),
        ({"tcp": {"least-timeout": 0}}, "a number > 0"),
        ({"window": "pair"}, 'give it in "tcp"'),
        ({"congestion-control": "dctcp"}, 'give it in "tcp"'),
        ({"reserve": 1}, "no effect without pauses"),
        ({"preset": "roce", "queue-packets": 8}, 'add "pauses": false'),
        ({"random-drop": 2}, "random-drop"),
    ],
)
def test_keys_that_have_no_effect_or_no_sense_are_refused(protocol: dict[str, Any], words: str) -> None:
    network = star()
    network["protocol"] = {"preset": "tcp"} | protocol
    with pytest.raises(MachineError, match=words):
        read_machine(network=network, system=SYSTEM)


@pytest.mark.parametrize("least", ["1ms", "200ms"])
def test_timers_of_acknowledged_packets_delay_nothing(least: str) -> None:
    """Check that queues that block each other open when no event is left, not at the end of old timers."""
    traces = []
    for rank in range(4):
        build = TraceBuilder()
        for number in range(6):
            work = build.compute("work", micros=1 + (29 * rank + 17 * number) % 40)
            build.collective("all_reduce", 20_000 + 1_000 * number, after=[work])
        traces.append(build.build())
    network = star(tcp={"least-timeout": least}) | {"logical-dimensions": [2, 2]}
    queues = {"scheduling-policy": "LIFO", "preferred-dataset-splits": 8, "active-chunks-per-dimension": 1}
    machine = SYSTEM | queues | {"all-reduce-implementation": ["ring", "ring"]}
    result = simulate(Workload.of(traces), system=machine, network=network, model="packet")
    assert result.makespan_ns == 398_422


def test_all_rows_are_free_when_messages_with_their_own_connections_have_arrived() -> None:
    result = sent(star(tcp={"per-message": True}), [(0, 1, 10_000), (1, 2, 10_000)] * 3)
    network = result.outcome.run.network
    assert state(result).free_flows.rows == len(network.flows)
