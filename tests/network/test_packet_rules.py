"""Rules of packets on random networks: with pauses no packet is lost; lost packets are sent again;
no packet is left over. Faults of keys and key files are reported in a sentence.
"""

from __future__ import annotations

import re
from itertools import pairwise, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import sends, simulate, system

from et_sim import TraceBuilder
from et_sim.basics.errors import MachineError
from et_sim.engine.containers import NONE
from et_sim.machine import read_machine, read_network_alone
from et_sim.machine.congestion import ROCE
from et_sim.machine.protocol_keys import WITHOUT_PAUSES
from et_sim.machine.protocol_presets import PRESETS
from et_sim.network.packet import events as packet_events
from et_sim.network.packet import model as packet_model
from et_sim.network.packet.closed import gives_up
from et_sim.network.packet.roce import pairs
from et_sim.network.packet.roce.records import AGAIN
from et_sim.run.result import Result

RANKS = 6
GENERATORS: tuple[dict[str, Any], ...] = (
    {"generator": "star", "npus": RANKS},
    {"generator": "ring", "npus": RANKS},
    {"generator": "torus", "sizes": [3, 2]},
    {"generator": "leaf-spine", "leaves": 3, "spines": 1, "npus-per-leaf": 2},
)
CONTROLS = tuple(ROCE)
MESSAGES = st.lists(
    st.tuples(st.integers(0, RANKS - 1), st.integers(1, RANKS - 1), st.integers(0, 60_000)),
    min_size=1,
    max_size=12,
)


def network(generator: dict[str, Any], protocol: dict[str, Any], rate: str = "100Gbps") -> dict[str, Any]:
    return {"graph": {**generator, "bandwidth": rate, "latency": "200ns"}, "protocol": protocol}


def run(
    net: dict[str, Any],
    messages: list[tuple[int, int, int]],
    keys: dict[str, Any] | None = None,
    ranks: int = RANKS,
) -> Result:
    """Run messages (source, places ahead, bytes), all at once."""
    ends = ((source, (source + ahead) % ranks, size) for source, ahead, size in messages)
    return simulate(sends(ranks, ends), net, system(**(keys or {})), model="packet", detail="links")


def assert_nothing_stays(result: Result) -> None:
    """Check that all packets, flows and buffers are free again, and that links carried all bytes sent."""
    assert result.is_complete
    tables = result.outcome.run.network
    state = tables.state[0]
    assert state.free_packets.rows == len(tables.packets)
    for name in ("held", "in_headroom", "waiting", "queued", "packets", "is_paused", "pauses"):
        assert not tables.ports[name].any(), name
    assert not tables.devices["used"].any()
    assert tables.ports["drops"].sum() == state.lost
    carried = result.table("links").to_pydict()["bytes"]
    assert sum(carried) == tables.ports["bytes"].sum()


@pytest.mark.deep
@given(
    st.sampled_from((0, 3)),
    st.sampled_from(CONTROLS),
    st.booleans(),
    st.sampled_from(["receipt", "acknowledgement"]),
    MESSAGES,
)
def test_with_pauses_no_packet_is_lost_or_reordered(
    shape: int,
    control: str,
    whole: bool,
    completion: str,
    messages: list[tuple[int, int, int]],
) -> None:
    protocol = {
        "preset": "datacenter",
        "payload": 1000,
        "congestion-control": control,
        "whole-ns": whole,
        "completion": completion,
        "buffer": 150_000,
        "marking": [{"bandwidth": "100Gbps", "from": 2000, "to": 20000, "probability": 0.3}],
    }
    result = run(network(GENERATORS[shape], protocol), messages)
    assert_nothing_stays(result)
    state = result.outcome.run.network.state[0]
    packets = sum(max(-(-size // 1000), 1) for _, _, size in messages)
    assert (state.lost, state.resent, state.sent, state.returned) == (0, 0, packets, packets)


@given(
    st.sampled_from(GENERATORS), st.sampled_from(("none", "swift", "powertcp")), st.integers(1, 4), MESSAGES
)
def test_lost_packets_are_sent_again(
    generator: dict[str, Any], control: str, places: int, messages: list[tuple[int, int, int]]
) -> None:
    protocol = {
        "preset": "datacenter",
        "payload": 1000,
        "congestion-control": control,
        "pauses": False,
        "queue-packets": places,
        "retransmission-timeout": "50us",
    }
    result = run(network(generator, protocol), messages)
    assert_nothing_stays(result)
    state = result.outcome.run.network.state[0]
    packets = sum(max(-(-size // 1000), 1) for _, _, size in messages)
    assert state.sent == packets + state.resent


LONE_PS = {  # of 1000 B over two links of 500 ns and 20 ps a byte
    "roce": 2 * (1036 * 20 + 48 * 20 + 2 * 500_000),
    "tcp": 2 * (1054 * 20 + 500_000),
    "datacenter": 2 * (1062 * 20 + 500_000),
    "ns3-parity": 2 * (21_000 + 1000 + 2 * 500_000),
    "ns3-tcp-parity": 2 * (21_000 + 500_000) + 1000,
    "htsim-parity": 2 * (20 + 500_000) + 3 * 1500 * 20 + 2 * 500_000,  # it is opened, and has two packets
}


@pytest.mark.parametrize("preset", PRESETS)
def test_a_lone_message_of_one_packet_ends_on_every_preset(preset: str) -> None:
    net = network(GENERATORS[0], {"preset": preset}, "400Gbps")
    net["graph"]["latency"] = "500ns"
    result = simulate(sends(RANKS, [(0, 1, 1000)]), net, system(**{"endpoint-delay": 0}), model="packet")
    assert result.is_complete
    assert result.makespan_ns == LONE_PS[preset] // 1000
    assert result.summary()["packets"]["lost"] == 0


LOSSY = {"preset": "roce", "pauses": False, "queue-packets": 2}


@pytest.mark.parametrize("completion", ["receipt", "acknowledgement"])
@pytest.mark.parametrize("rendezvous", [False, True])
def test_a_stall_names_packets_lost_without_retransmission(completion: str, rendezvous: bool) -> None:
    messages = [(source, RANKS - source, 20_000) for source in range(1, RANKS)]
    keys = {"rendezvous-protocol": rendezvous}
    result = run(network(GENERATORS[0], LOSSY | {"completion": completion}), messages, keys)
    stall = result.stall
    assert stall is not None
    lost = result.summary()["packets"]["lost"]
    outcome = (
        rf"(\d) messages never arrive: {lost} packets were lost, most at switch0->npu0, and lost packets "
    )
    match = re.search(outcome + "are not sent again", stall.cause)
    assert match
    assert {wait.kind for wait in stall.waits} == {"undelivered"}
    assert sum(wait.operation == "receive" for wait in stall.waits) == int(match[1])
    assert not stall.dead_ends
    assert stall.remedies == ("give protocol a retransmission-timeout, or pauses: true",)
    assert "rendezvous" not in stall.text
    again = LOSSY | {"completion": completion, "retransmission-timeout": "50us"}
    assert run(network(GENERATORS[0], again), messages, keys).is_complete


def test_a_paused_sender_resumes_at_the_latest_when_none_of_its_bytes_are_left() -> None:
    """Fill the buffer with other packets, and resume only below a high limit."""
    protocol = {"preset": "datacenter", "payload": 1000, "congestion-control": "none", "window": "none"}
    protocol |= {"buffer": 150_000, "resume-below": 140_000, "reserve": 0}
    messages = [(source, RANKS - source, 100_000) for source in range(1, RANKS)]
    result = run(network(GENERATORS[0], protocol), messages)
    assert result.outcome.run.network.ports["paused"].sum() > 0
    assert_nothing_stays(result)


def test_timers_of_congestion_control_end_without_retransmission() -> None:
    messages = [(source, RANKS - source, 20_000) for source in range(1, RANKS)]
    marking = [{"bandwidth": "100Gbps", "from": 0, "to": 1, "probability": 1}]
    keys = LOSSY | {"congestion-control": "dcqcn", "marking": marking}
    result = run(network(GENERATORS[0], keys), messages)
    assert result.summary()["packets"]["marked"] > 0
    assert result.stall is not None
    assert "lost packets are not sent again" in result.stall.cause


@pytest.mark.deep
def test_after_its_recoveries_a_target_rate_rises_once_by_the_step_and_then_by_the_large_one() -> None:
    """Check that each of the two steps makes a run shorter."""
    marking = [{"bandwidth": "100Gbps", "from": 0, "to": 1, "probability": 1}]
    protocol = {"preset": "datacenter", "payload": 1000, "congestion-control": "dcqcn", "marking": marking}
    protocol |= {"increase-interval": "2us", "recoveries": 1}

    def took(step: str, large: str) -> int:
        steps = {"rate-step": step, "large-rate-step": large}
        return run(network(GENERATORS[0], protocol | steps), [(0, 2, 200_000), (1, 1, 20_000)]).makespan_ns

    assert took("10Gbps", "1Mbps") < took("1Mbps", "1Mbps")
    assert took("1Mbps", "10Gbps") < took("1Mbps", "1Mbps")


@pytest.mark.parametrize("timeout", [0, "10us"])
@pytest.mark.parametrize("control", ["none", "dcqcn"])
def test_cyclic_pauses_end_in_a_stall_that_names_them(timeout: Any, control: str) -> None:
    keys = {"congestion-control": control, "window": "none", "buffer": 66_000, "reserve": 0, "payload": 1000}
    keys |= {"preset": "datacenter", "retransmission-timeout": timeout}
    keys["marking"] = [{"bandwidth": "100Gbps", "from": 0, "to": 1, "probability": 1}]
    messages = [(source, ahead, 40_000) for ahead in (3, 2) for source in range(RANKS)]
    stall = run(network(GENERATORS[1], keys), messages).stall
    assert stall is not None
    assert "paused ports wait for each other" in stall.cause
    circle = re.findall(r"npu(\d)->npu(\d)", stall.cause)
    assert len(circle) == RANKS
    assert all(to == begin for (_, to), (begin, _) in pairwise([*circle, circle[0]]))


def closed_circle(**more: Any) -> Result:
    """Run messages on a ring of five whose pauses close a circle; acknowledgements of one wait in it."""
    keys = {"congestion-control": "none", "window": "none", "buffer": 66_000, "reserve": 0, "payload": 1000}
    keys |= {"preset": "datacenter", "retransmission-timeout": "200us", "completion": "receipt"}
    far = zip(range(5), repeat(3), (100_000, 100_000, 40_000, 40_000, 100_000), strict=False)
    near = zip(range(5), repeat(2), (100_000, 40_000, 100_000, 100_000, 100_000), strict=False)
    return run(network({"generator": "ring", "npus": 5}, keys) | more, [*far, *near], ranks=5)


def test_messages_whose_acknowledgements_wait_for_ever_end_their_tries() -> None:
    result = closed_circle()
    assert result.stall is not None
    assert "paused ports wait for each other" in result.stall.cause
    tables = result.outcome.run.network
    ports = tables.flows["port"][(tables.transport.pairs["acknowledged"] < tables.flows["size"])]
    assert not tables.ports["is_paused"][ports].all()
    assert 0 < tables.state[0].timeouts < 20


def test_senders_try_again_until_a_link_of_the_circle_dies() -> None:
    """Check a link whose end ends the pauses of its ports, and so the circle."""
    result = closed_circle(failures=[{"link": "npu0->npu1", "at": "10ms", "for": "1ms"}])
    assert result.is_complete
    assert result.makespan_ns > 10**7


def test_connections_of_tcp_end_their_tries_at_ports_that_stay_paused() -> None:
    keys = {"preset": "tcp", "pauses": True, "buffer": 66_000, "reserve": 0}
    messages = [(source, ahead, 4_000_000) for ahead in (3, 2) for source in range(5)]
    stall = run(network({"generator": "ring", "npus": 5}, keys), messages, ranks=5).stall
    assert stall is not None
    assert "paused ports wait for each other" in stall.cause


def test_a_sender_whose_way_back_is_closed_tries_once_more_even_if_no_byte_has_arrived() -> None:
    closed = SimpleNamespace(is_paused=1, is_closed=1)
    tables: Any = SimpleNamespace(
        rules=[SimpleNamespace(pauses=1)],
        state=[SimpleNamespace(searched_ps=0, now_ps=5)],
        fails=[],
        flows=[SimpleNamespace(back=1)],
        stride=[3],
        ways=[NONE, 0, NONE],
        ports=[closed],
    )
    made = run(network(GENERATORS[1], {"preset": "roce"}), [(0, 1, 5000)]).outcome.run.network
    sender = SimpleNamespace(tried=made.transport.pairs["tried"][0], expected=0)
    assert [gives_up(tables, 0, sender) for _ in range(2)] == [False, True]
    sender.expected = 1000
    assert [gives_up(tables, 0, sender) for _ in range(2)] == [False, True]


def test_connections_have_made_no_try_when_they_begin() -> None:
    made = run(network(GENERATORS[1], {"preset": "tcp"}), [(0, 1, 5000)]).outcome.run.network.transport
    assert made.connections["tried"][made.connections["sent"] > 0].tolist() == [NONE]


@pytest.mark.parametrize("is_paused", [0, 1])
def test_a_pair_waits_for_its_acknowledgements_only_if_its_port_sends(
    is_paused: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = []
    for name in ("stop", "wait_again", "send_next"):
        monkeypatch.setattr(pairs, name, lambda *_, name=name: called.append(name))
    monkeypatch.setattr(pairs, "gives_up", lambda *_: False)
    monkeypatch.setattr(pairs, "control", SimpleNamespace(timed_out=lambda *_: called.append("slower")))
    tables = SimpleNamespace(
        transport=SimpleNamespace(
            pairs=[SimpleNamespace(sent=9, acknowledged=4, next_ps=0)], watched=[SimpleNamespace(is_known=0)]
        ),
        state=[SimpleNamespace(timeouts=0, now_ps=7)],
        flows=[SimpleNamespace(timeouts=0, port=0)],
        fails=[],
        ports=[SimpleNamespace(is_paused=is_paused)],
    )
    pairs.timer_rings(tables, AGAIN)
    assert called == ["stop", "slower", *(["wait_again"] if not is_paused else []), "send_next"]
    assert (tables.state[0].timeouts, tables.transport.pairs[0].sent) == (1, 4)


@pytest.mark.parametrize(("left_ps", "how"), [(0, "first"), (300, "last")])
def test_packets_of_a_part_of_a_nanosecond_come_after_its_other_events(
    left_ps: int, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = []
    monkeypatch.setattr(packet_events, "schedule", lambda *_: called.append("last"))
    monkeypatch.setattr(packet_events, "schedule_first", lambda *_: called.append("first"))
    monkeypatch.setattr(packet_events, "observe", SimpleNamespace(next_event_follows=lambda *_: None))
    monkeypatch.setattr(packet_events, "next_ps", lambda _: 5000 + left_ps)
    state = SimpleNamespace(moving=1, planned_ns=NONE, plans=0)
    run: Any = SimpleNamespace(
        network=SimpleNamespace(state=[state], units=(1, 1000)), clock=[SimpleNamespace(now=5)]
    )
    packet_events.plan_next(run)
    assert called == [how]
    assert state.planned_ns == 5


TORUS = {"generator": "torus", "sizes": [3, 3]}
TRAFFIC = st.lists(
    st.tuples(st.integers(0, 8), st.integers(1, 8), st.integers(1, 30_000)), min_size=4, max_size=30
)


@pytest.mark.deep
@given(
    st.integers(64_000, 120_000),
    st.sampled_from([0, 4096]),
    st.booleans(),
    st.sampled_from([0, "20us", "10ms"]),
    TRAFFIC,
)
def test_tori_with_small_buffers_lose_nothing_and_end_or_report_the_waits(
    room: int, reserve: int, has_window: bool, timeout: Any, messages: list[tuple[int, int, int]]
) -> None:
    protocol = {"preset": "datacenter", "payload": 1000, "congestion-control": "none", "buffer": room}
    protocol |= {"reserve": reserve, "window": "pair" if has_window else "none", "resume-below": 0}
    protocol["retransmission-timeout"] = timeout
    result = run(network(TORUS, protocol), messages, ranks=9)
    tables = result.outcome.run.network
    assert tables.state[0].lost == tables.ports["drops"].sum() == 0
    if result.stall is None:
        assert_nothing_stays(result)
        return
    circle = re.findall(r"npu(\d)->npu(\d)", result.stall.cause)
    assert len(circle) > 2
    assert all(to == begin for (_, to), (begin, _) in pairwise([*circle, circle[0]]))


def test_pauses_need_links_back() -> None:
    speed = {"bandwidth": "100Gbps", "latency": "1us", "one-way": True}
    ring = [{"from": f"npu{n}", "to": f"npu{(n + 1) % RANKS}", **speed} for n in range(RANKS)]
    net: dict[str, Any] = {"npus": RANKS, "links": ring, "protocol": {"preset": "datacenter"}}
    with pytest.raises(MachineError, match="no link leads back along npu0->npu1"):
        run(net, [(0, 2, 1000)])
    net["protocol"] |= {"pauses": False}
    assert run(net, [(0, 2, 1000)]).is_complete


def test_a_collective_reports_its_lost_packets() -> None:
    builders = [TraceBuilder() for _ in range(RANKS)]
    for builder in builders:
        builder.collective("all_to_all", 20_000)
    net = network(GENERATORS[1], LOSSY | {"queue-packets": 1})
    stall = simulate(builders, net, system("direct"), model="packet").stall
    assert stall is not None
    assert "of which packets were lost" in stall.waits[0].text


def test_a_message_without_a_send_is_no_loss() -> None:
    builders = [TraceBuilder() for _ in range(RANKS)]
    builders[0].receive(1, 1000)
    stall = simulate(builders, network(GENERATORS[0], LOSSY), system(), model="packet").stall
    assert stall is not None
    assert "rank 1 never sends it" in stall.cause


def test_a_pause_is_shorter_than_its_cause_and_reported_with_its_place() -> None:
    messages = [(source, (RANKS - source) % RANKS, 100_000) for source in range(1, RANKS)]
    protocol = {"preset": "datacenter", "congestion-control": "none", "buffer": 250_000}
    result = run(network(GENERATORS[0], protocol), messages)
    outcome = result.table("ports").to_pydict()
    assert sum(outcome["pauses"]) > 0
    assert all(paused < result.makespan_ns for paused in outcome["paused_ns"])
    assert result.summary()["packets"]["pauses"] == sum(outcome["pauses"])
    assert result.summary()["packets"]["lost_at"] is None


def test_a_lone_message_is_as_fast_as_its_window_lets_it() -> None:
    """Send with a window of two packets on a long link: two packets per round trip."""
    net = network(
        {"generator": "star", "npus": RANKS}, {"preset": "datacenter", "payload": 1000, "header": 0}
    )
    net["graph"]["latency"] = "100us"
    net["protocol"] |= {"window": "none", "acknowledgement": 0, "buffer": 1 << 27}
    once = run(net, [(0, 1, 50_000)]).makespan_ns
    assert once == 200_000 + 51 * 80
    late = run(net | {"protocol": net["protocol"] | {"congestion-control": "none"}}, [(0, 1, 0)]).makespan_ns
    assert late == 200_000


NEAR_NS, FAR_NS = 2 * 400 + 80 + 80, 2 * 1200 + 80 + 160  # there and back, and a packet on each link there
NEAR, FAR = NEAR_NS * 25 // 2, FAR_NS * 25 // 4  # bytes, at 100 and 50 Gb/s


@pytest.mark.parametrize(
    ("window", "windows", "round_trips"),
    [
        ("none", [0, 0], [NEAR_NS, FAR_NS]),
        ("pair", [NEAR, FAR], [NEAR_NS, FAR_NS]),
        ("largest", [FAR, FAR], [FAR_NS, FAR_NS]),
    ],
)
def test_windows_hold_the_bytes_of_a_round_trip_of_their_own_or_of_the_longest(
    window: str, windows: list[int], round_trips: list[int]
) -> None:
    net = network({"generator": "star", "npus": 3}, {"preset": "datacenter", "payload": 1000, "header": 0})
    net["protocol"]["window"] = window
    net["overrides"] = [{"between": ["npu2", "switch0"], "bandwidth": "50Gbps", "latency": "1us"}]
    pairs_of = run(net, [(0, 1, 9), (0, 2, 9)], ranks=3).outcome.run.network.transport.pairs
    assert pairs_of["window"][:2].tolist() == windows
    assert pairs_of["base_ps"][:2].tolist() == [1000 * time for time in round_trips]


KEYS = {
    "L2_ACK_INTERVAL": "1",
    "RP_TIMER": "900",
    "RATE_AI": "50Mb/s",
    "RATE_HAI": "100Mb/s",
    "KMAX_MAP": "1 100000000000 1600",
    "KMIN_MAP": "1 100000000000 400",
    "PMAX_MAP": "1 100000000000 0.2",
    "CC_MODE": "12",
}


def with_keys(folder: Path, keys: dict[str, str | None]) -> Path:
    lines = [f"{key} {value}\n" for key, value in (KEYS | keys).items() if value is not None]
    (folder / "keys.txt").write_text("".join(lines), encoding="utf-8")
    file = folder / "network.yml"
    file.write_text(
        "graph: { generator: star, npus: 4, bandwidth: 100Gbps }\nprotocol: { file: keys.txt }\n",
        encoding="utf-8",
    )
    return file


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"L2_ACK_INTERVAL": "2"}, "line 1: key L2_ACK_INTERVAL is '2': only 1 is simulated"),
        ({"CC_MODE": "10"}, "HPCC-PINT is not simulated"),
        ({"CC_MODE": "3"}, "HPCC has one rate for all links here"),
        ({"CC_MOD": "1"}, "not a key of ns-3's file"),
        ({"RATE_AI": "50"}, "no bandwidth follows"),
        ({"KMAX_MAP": "2 100000000000 1600"}, "not a count and as many pairs"),
        ({"KMAX_MAP": "1 25000000000 1600"}, "the maps name different bandwidths"),
        ({"LINK_DOWN": "0 1 0"}, "links do not fail during a run"),
        ({"ERROR_RATE_PER_LINK": "0.01"}, "links lose no packets here"),
        ({"RP_TIMER": None}, "key RP_TIMER is missing (add, as in the frontend's own file: RP_TIMER 900)"),
        (
            {"RP_TIMER": None, "PMAX_MAP": None},
            "keys RP_TIMER, PMAX_MAP are missing (add, as in the frontend's own file: RP_TIMER 900; PMAX",
        ),
        ({"RP_TIMER": None, "BUFFER_SIZE": "x"}, "key BUFFER_SIZE is 'x'"),
        ({"KMIN_MAP": None, "KMAX_MAP": "2 1"}, "key KMAX_MAP is '2 1'"),
        ({"RP_TIMER": "0"}, "key RP_TIMER is '0': an interval of less than a picosecond"),
        ({"BUFFER_SIZE": "1.5"}, "not a whole number"),
    ],
)
def test_faults_of_a_key_file_are_reported(keys: dict[str, str | None], text: str, tmp_path: Path) -> None:
    with pytest.raises(MachineError) as caught:
        read_network_alone(with_keys(tmp_path, keys))
    assert text in str(caught.value)


def test_one_warning_names_all_keys_of_a_key_file_that_change_nothing(tmp_path: Path) -> None:
    keys = {"L2_CHUNK_SIZE": "4000", "PINT_PROB": "1.0", "MULTI_RATE": "0", "U_TARGET": "0.95"}
    described = read_machine(system=system(), network=with_keys(tmp_path, {**keys, "CC_MODE": "8"}))
    assert [warning.text for warning in described.warnings if "no effect" in warning.text] == [
        "no effect: L2_CHUNK_SIZE, PINT_PROB; "
        "no effect with CC_MODE 8: RP_TIMER, RATE_AI, RATE_HAI, MULTI_RATE, U_TARGET"
    ]


@pytest.mark.parametrize(
    ("protocol", "text"),
    [
        ({"preset": "datacenter", "least-rate": "fast"}, "fast"),
        (
            {
                "preset": "datacenter",
                "marking": [{"bandwidth": "1Gbps", "from": 5, "to": 4, "probability": 1}],
            },
            "less",
        ),
        ({"preset": "datacenter", "marking": [{"bandwidth": "1Gbps"}]}, 'key "from" is missing'),
        ({"preset": "datacenter", "file": "keys.txt"}, "both a preset and a file"),
        ({"preset": "datacenter", "low-rtt": "600us"}, "high-rtt is less, 500000 ns"),
        ({"preset": "datacenter", "high-rtt": "1us"}, "low-rtt is 50000 ns"),
        ({"preset": "datacenter", "resume-below": 1 << 26}, "the buffer has 33,554,432"),
        *(
            ({"preset": "datacenter", key: 1e-5}, f'key "{key}" is less than a picosecond')
            for key in ("alpha-interval", "decrease-interval", "increase-interval", "retransmission-timeout")
        ),
        ({"preset": "tcp", "tcp": {"timeout-interval": 1e-5}}, "less than a picosecond"),
        *(({"preset": "roce", key: 1}, f'key "{key}" has no effect with pauses') for key in WITHOUT_PAUSES),
        ({"preset": "tcp", "reserve": 5000}, 'key "reserve" has no effect without pauses'),
    ],
)
def test_faults_of_keys_are_reported(protocol: dict[str, Any], text: str) -> None:
    with pytest.raises(MachineError, match=text):
        read_network_alone(network(GENERATORS[0], protocol))


@pytest.mark.parametrize(
    ("protocol", "text"),
    [
        (
            {"pauses": False, "queue-bytes": 4157},
            "a packet takes 4,158 bytes, and a queue has at most queue-bytes 4,157",
        ),
        ({"pauses": False, "buffer": 4157}, "larger buffer, or a larger queue-share"),
        ({"pauses": False, "queue-share": 1e-9}, "a queue has at most 1e-09 times the buffer"),
        ({"pauses": False, "random-drop": 1, "random-drop-from": 4157}, "give protocol a larger random-drop"),
        ({"buffer": 1000}, "switch0 needs 175.11 KiB of buffer .*give protocol a larger buffer"),
        (
            {"preset": "ns3-parity", "payload": 9000, "buffer": 72_000},
            "a packet takes 9,036 bytes, and switch0 has space for",
        ),
        ({"least-rate": "101Gbps"}, "least-rate is 101 Gbps, and no link has more than 100 Gbps"),
        ({"preset": "tcp", "payload": 10, "tcp": {"opening": 70}, "queue-bytes": 69}, "takes 70 bytes"),
    ],
)
def test_unsuitable_protocols_of_a_network_are_refused(protocol: dict[str, Any], text: str) -> None:
    wired = read_network_alone(network(GENERATORS[0], {"preset": "datacenter"} | protocol))
    with pytest.raises(MachineError, match=text):
        packet_model.check(wired)


def test_a_link_that_is_too_fast_to_count_packets_on_is_refused() -> None:
    with pytest.raises(MachineError, match=r"supports up to 9\.0072e\+06 Gbps \(correct its bandw"):
        run(network(GENERATORS[0], {"preset": "datacenter"}, "9100000GB/s"), [(0, 1, 1)])
    star = network({"generator": "star", "npus": RANKS}, {"preset": "datacenter"})
    one = {"overrides": [{"link": "npu0->switch0", "bandwidth": "9100000GB/s"}]}
    with pytest.raises(MachineError, match=r"a link of 7\.28e"):
        run(star | one, [(0, 1, 1)])


@pytest.mark.parametrize(
    ("protocol", "is_warned"),
    [
        ({"preset": "roce", "pauses": False}, True),
        ({"preset": "roce"}, False),
        ({"preset": "datacenter", "pauses": False}, False),
        ({"preset": "roce", "pauses": False, "retransmission-timeout": "1ms"}, False),
        ({"preset": "tcp"}, False),
    ],
)
def test_missing_retransmission_is_a_warning(protocol: dict[str, Any], is_warned: bool) -> None:
    described = read_machine(system=system(), network=network(GENERATORS[0], protocol))
    assert any("is not sent again" in warning.text for warning in described.warnings) == is_warned


def test_the_flow_model_reports_keys_without_effect() -> None:
    protocol = {"preset": "tcp", "payload": 1000, "queue-bytes": 5000, "tcp": {"sack": False}}
    for keys, texts in (
        (protocol, ["no effect on the flow model, only on packet: queue-bytes, tcp"]),
        ({"preset": "tcp", "payload": 1000}, []),
    ):
        builders = [TraceBuilder() for _ in range(RANKS)]
        warnings = simulate(builders, network(GENERATORS[0], keys), system(), model="flow").manifest[
            "warnings"
        ]
        assert [warning["text"] for warning in warnings if warning["key"] == "protocol"] == texts


def test_a_queue_for_one_packet_is_enough() -> None:
    protocol = {"preset": "datacenter", "pauses": False, "queue-bytes": 4158, "congestion-control": "none"}
    assert_nothing_stays(run(network(GENERATORS[0], protocol), [(0, 1, 9000), (2, 5, 9000)]))


def test_random_numbers_match_the_generator_of_ns3() -> None:
    """Check MRG32k3a: with six times 12345 it begins with 0.1270 (L'Ecuyer 1999), with ones it is uniform."""
    from et_sim.network.packet.randomness import COEFFICIENTS, streams_of_ns3

    last, second, third = COEFFICIENTS[0]
    drawn = (second * 12345 + third * 12345 + last * 12345) % 4294967087
    last, second, third = COEFFICIENTS[1]
    other = (last * 12345 + third * 12345) % 4294944443
    assert (drawn - other) % 4294967087 / 4294967088 == pytest.approx(0.12701112204657714)
    now, step = streams_of_ns3(17)
    assert now.shape == (6,)
    assert step.shape == (18,)
    assert (np.array(now) < 4294967087).all()


def test_streams_of_random_numbers_are_those_of_the_published_generator() -> None:
    """Check MRG32k3a with all seeds 12345: the first numbers of two streams, and the start of the second."""
    from et_sim.network.packet.randomness import _of_next_stream, streams_of_ns3

    network: Any = SimpleNamespace(streams=[12345] * 6, stream_step=streams_of_ns3(0)[1].tolist())
    assert _of_next_stream(network) == pytest.approx(0.127011122046577, abs=1e-15)
    assert network.streams == [3692455944, 1366884236, 2968912127, 335948734, 4161675175, 475798818]
    assert _of_next_stream(network) == pytest.approx(0.7595818622, abs=1e-9)
