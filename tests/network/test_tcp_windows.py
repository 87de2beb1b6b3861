"""Windows of TCP, acknowledgement by acknowledgement, against RFC 5681, RFC 8312 and RFC 8257."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from et_sim.network.packet.records import NEVER
from et_sim.network.packet.tcp import control
from et_sim.network.packet.tcp.controls import cubic, dctcp, newreno, reno

PAYLOAD = 1000
S_PS, MS_PS = 10**12, 10**9


def begun(of: ModuleType, **more: Any) -> tuple[Any, Any]:
    """Return a network and its only connection, of 10 packets; its record is also its control's."""
    rules = SimpleNamespace(payload=PAYLOAD, first_window=10, first_threshold=0, gain=0.25)
    connection = SimpleNamespace(acknowledged=1, highest=1, sent=1, rtt_ps=MS_PS)
    network = SimpleNamespace(
        transport=SimpleNamespace(connections=[connection], rules=[rules]),
        control=of.Senders([rules], [connection]),
        state=[SimpleNamespace(now_ps=0)],
    )
    control.begins(network, 0)
    vars(connection).update(more)
    return network, connection


def windows(network: Any, *packets: int) -> list[int]:
    """Return the window, in bytes, after acknowledgements of these numbers of packets."""
    found = []
    for count in packets:
        control.grows(network, 0, count)
        found.append(network.transport.connections[0].window)
    return found


def test_a_first_threshold_is_counted_in_packets_and_none_is_no_limit() -> None:
    network, connection = begun(reno)
    assert (connection.window, connection.threshold) == (10 * PAYLOAD, NEVER)
    network.transport.rules[0].first_threshold = 4
    control.begins(network, 0)
    assert connection.threshold == 4 * PAYLOAD


def test_newreno_adds_a_packet_an_acknowledgement_and_then_one_a_window() -> None:
    network, _ = begun(newreno, threshold=12 * PAYLOAD)
    assert windows(network, 1, 0, -1, 1, 1) == [
        11_000,
        11_000,
        11_000,
        12_000,
        12_000 + 1000 * 1000 // 12_000,
    ]
    # The rest of an acknowledgement that reaches the threshold counts as beyond it.
    network, _ = begun(newreno, threshold=11 * PAYLOAD)
    assert windows(network, 2) == [11_000 + 1000 * 1000 // 11_000]


def test_reno_grows_by_acknowledged_packets_up_to_its_threshold_then_by_one_a_window() -> None:
    network, connection = begun(reno, threshold=12 * PAYLOAD)
    assert windows(network, 5) == [12_000]
    assert windows(network, 11, 1) == [12_000, 13_000]
    assert connection.count == 0
    assert windows(network, 27) == [15_000]
    assert connection.count == 1
    connection.window, connection.threshold, connection.count = 9_000, 9_000, 9  # it has shrunk meanwhile
    assert windows(network, 1) == [10_000]
    assert connection.count == 1


@pytest.mark.parametrize(("count", "expected"), [(99, 10_000), (100, 11_000)])
def test_cubic_adds_a_packet_when_as_many_as_it_wants_are_acknowledged(count: int, expected: int) -> None:
    network, connection = begun(cubic, threshold=0, largest=20, epoch_ps=0, plateau_s=10.0, origin=10)
    network.state[0].now_ps = 10 * S_PS  # at its plateau it does not grow: one packet a hundred windows
    connection.window = PAYLOAD
    connection.origin = 1
    assert windows(network, count) == [PAYLOAD + (expected - 10_000)]
    assert connection.count == (count if expected == 10_000 else 0)


def test_cubic_follows_a_cubic_function_with_the_last_window_as_its_plateau() -> None:
    network, connection = begun(cubic, threshold=0, largest=100, least_rtt_ps=0)

    def wanted(at_s: float) -> int:
        network.state[0].now_ps = int(at_s * S_PS)
        return int(cubic._packets_for_one(network, connection, 70))

    assert wanted(0) == 70 // (100 - 29 - 70)  # 30 packets below its plateau, rounded
    assert connection.plateau_s == pytest.approx((30 / 0.4) ** (1 / 3))
    assert connection.origin == 100
    before = connection.plateau_s - 1.0  # then it lacks int(0.4) = 0 of the plateau
    assert wanted(before) == 70 // 30
    assert wanted(connection.plateau_s - 4) == 70 // (100 - int(0.4 * 4**3) - 70)
    assert wanted(connection.plateau_s + 4) == max(70 // (100 + int(0.4 * 4**3) - 70), 2)


@pytest.mark.parametrize(("largest", "origin", "wanted"), [(70, 70, 7000), (0, 70, 20), (71, 71, 70)])
def test_cubic_begins_a_plateau_at_its_window_if_that_is_as_large_as_ever(
    largest: int, origin: int, wanted: int
) -> None:
    """Check that without a loss, the window grows by at least one in twenty packets."""
    network, connection = begun(cubic, threshold=0, largest=largest, least_rtt_ps=0)
    assert cubic._packets_for_one(network, connection, 70) == wanted
    assert connection.origin == origin
    assert (connection.plateau_s == 0) == (largest <= 70)


def test_cubic_takes_its_rounds_from_bytes_sent() -> None:
    network, connection = begun(cubic, round_to=5_000, acknowledged=5_000, highest=9_000, samples=3)
    assert windows(network, 2) == [12_000]
    assert (connection.round_to, connection.samples) == (5_000, 3)
    connection.acknowledged = 5_001
    assert windows(network, 1) == [13_000]
    assert (connection.round_to, connection.samples) == (9_000, 0)


@pytest.mark.parametrize(
    ("since_train", "since_round", "packets", "ends"),
    [
        (2 * MS_PS, 5 * MS_PS + 1, 16, True),
        (2 * MS_PS + 1, 5 * MS_PS + 1, 16, False),  # they do not come closely
        (2 * MS_PS, 5 * MS_PS, 16, False),  # not for longer than there and back
        (2 * MS_PS, 5 * MS_PS + 1, 15, False),  # the window is small
    ],
)
def test_slow_start_of_cubic_ends_when_acknowledgements_come_closely_for_long(
    since_train: int, since_round: int, packets: int, ends: bool
) -> None:
    network, connection = begun(cubic, rtt_ps=5 * MS_PS)
    now = network.state[0].now_ps = S_PS
    connection.train_ps, connection.round_ps = now - since_train, now - since_round
    connection.window = packets * PAYLOAD
    control.was_acknowledged(network, 0, 1, False)
    assert connection.is_past_slow_start == ends
    assert connection.threshold == (packets * PAYLOAD if ends else NEVER)


@pytest.mark.parametrize(("growth", "ends"), [(0, False), (1, True)])
def test_slow_start_of_cubic_ends_when_the_way_takes_longer(growth: int, ends: bool) -> None:
    """Check growth of more than 4 ms, in the least of eight times."""
    network, connection = begun(cubic, window=16 * PAYLOAD, least_rtt_ps=MS_PS)
    network.state[0].now_ps = S_PS
    connection.rtt_ps = 5 * MS_PS + growth
    for _ in range(8):
        control.was_acknowledged(network, 0, 1, False)
        assert not connection.is_past_slow_start
    connection.rtt_ps = MS_PS  # the ninth is none of them
    control.was_acknowledged(network, 0, 1, False)
    assert connection.is_past_slow_start == ends


@pytest.mark.parametrize(("passed", "taken"), [(10 * MS_PS - 1, NEVER), (10 * MS_PS, MS_PS)])
def test_cubic_takes_no_times_right_after_an_epoch_began(passed: int, taken: int) -> None:
    network, connection = begun(cubic, epoch_ps=S_PS)
    network.state[0].now_ps = S_PS + passed
    control.was_acknowledged(network, 0, 1, False)
    assert connection.least_rtt_ps == taken


def test_dctcp_follows_the_marked_part_once_a_window() -> None:
    network, connection = begun(dctcp, sent=5_000)
    control.was_acknowledged(network, 0, 3, True)
    assert (connection.alpha, connection.round_to) == (1.0, 5_000)
    connection.acknowledged, connection.sent = 4_999, 8_000
    control.was_acknowledged(network, 0, 4, False)
    assert connection.alpha == 1.0
    connection.acknowledged = 5_000
    control.was_acknowledged(network, 0, 5, False)
    assert connection.alpha == 0.75 + 0.25 * 3 / 12
    assert (connection.packets, connection.marked, connection.round_to) == (0, 0, 8_000)
