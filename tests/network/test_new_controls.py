"""Swift and PowerTCP: single updates and the state at which they settle, against the published rules."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from types import SimpleNamespace
from typing import Any

import pytest
from machines import sends, simulate, system
from numba.np.numpy_support import from_dtype

from et_sim.basics.errors import MachineError
from et_sim.compiled.signature import fields_of
from et_sim.machine import read_network_alone
from et_sim.machine.congestion import ROCE, TCP, keys_of_control
from et_sim.machine.transports import Control, PacketProtocol, Packets, Tcp
from et_sim.network.packet import controls, model
from et_sim.network.packet.records import ACKNOWLEDGEMENT, NEGATIVE
from et_sim.network.packet.roce.controls import powertcp, swift
from et_sim.network.settings import settings_row
from et_sim.run.result import Result

LINE = 10**11  # bits per second
PAYLOAD = 1000
US_PS = 10**6
BYTES_PER_PS = LINE / 8e12
TARGET_ALONE = {"target-per-hop": 0, "target-range": 0}
LATENCY_PS = 500_000
BASE_PS = 4 * LATENCY_PS + 2 * PAYLOAD * 80  # two links of the star, there and back


def star(npus: int, control: str, **keys: Any) -> dict[str, Any]:
    graph = {"generator": "star", "npus": npus, "bandwidth": "100Gbps", "latency": "0.5us"}
    protocol = {"payload": PAYLOAD, "header": 0, "acknowledgement": 0, "store-and-forward": True}
    return {"graph": graph, "protocol": {**protocol, "congestion-control": control, **keys}}


def incast(control: str, senders: int, size: int, **keys: Any) -> Result:
    """Send a message from each sender to rank 0, all at once, and record the figures of each message."""
    messages = [(rank, 0, size) for rank in range(1, senders + 1)]
    network = star(senders + 1, control, **keys)
    return simulate(sends(senders + 1, messages), network, system(), model="packet", detail="ports")


def settled_queue(result: Result) -> float:
    """Return the mean bytes that wait for rank 0 in the second half of a run, without its end."""
    rows = [row for row in result.table("queues").to_pylist() if row["link"].endswith("->npu0")]
    means = [row["mean_bytes"] for row in rows[len(rows) // 2 : -len(rows) // 8]]
    return sum(means) / len(means)


def finishes(result: Result) -> list[int]:
    return [int(time) for time in result.table("flows").to_pydict()["arrived_ns"]]


class Sender:
    """One pair of 100 Gbps with a window of 10 packets, and its control."""

    def __init__(self, of: Any, monkeypatch: pytest.MonkeyPatch, **keys: Any) -> None:
        self.of = of
        monkeypatch.setattr(of, "set_rate", lambda _, __, rate: setattr(self.pair, "rate", rate))
        name = next(name for name in ROCE if ROCE[name] == of.__name__)
        constants = {key.replace("_", "-"): value for key, value in keys.items()}
        rules = settings_row(
            Control(), keys_of_control(ROCE, name, tuple(constants.items())), payload=PAYLOAD, header=0
        )
        self.rules: Any = rules[0]
        self.pair = SimpleNamespace(
            rate=LINE, line_rate=LINE, sent=10_000, base_ps=10 * US_PS, window=10 * PAYLOAD, shrinks=1
        )
        self.own = SimpleNamespace()
        self.packet = SimpleNamespace(sequence=0, sent_ps=0, kind=ACKNOWLEDGEMENT)
        self.state = SimpleNamespace(now_ps=100 * US_PS)
        self.network = SimpleNamespace(
            transport=SimpleNamespace(pairs=[self.pair]),
            control=of.Senders(rules, [self.own]),
            state=[self.state],
            flows=[SimpleNamespace(back=3)],
            packets=[self.packet],
            ports=[SimpleNamespace(bits_per_s=LINE)],
            ways=[0] * 8,
            stride=[8],
        )
        of.begins(self.network, 0)

    def after(self, rtt_us: float) -> float:
        """Return the window after an acknowledgement with this round-trip time."""
        self.packet.sent_ps = self.state.now_ps - int(rtt_us * US_PS)
        self.of.acknowledged(self.network, 0, 0)
        return float(self.own.window)


Made = Callable[..., Sender]


@pytest.fixture
def sender(monkeypatch: pytest.MonkeyPatch) -> Made:
    return lambda of, **keys: Sender(of, monkeypatch, **keys)


FLAT = {"target_range": 0.0, "target_per_hop": 0.0}  # the target is the base alone


def test_swift_begins_with_the_window_of_the_pair(sender: Made) -> None:
    of = sender(swift)
    assert (of.own.window, of.pair.window, of.pair.rate, of.pair.shrinks) == (10, 10 * PAYLOAD, LINE, 0)


def test_swift_rises_by_its_step_in_a_round_trip_below_the_target(sender: Made) -> None:
    of = sender(swift, **FLAT)
    assert of.after(24.9) == 10 + 1 / 10
    assert of.after(24.9) == 10.1 + 1 / 10.1
    of.own.window = 0.5
    assert of.after(24.9) == 1.5  # a packet is a whole window and more


def test_swift_falls_by_a_part_of_the_excess_once_in_a_round_trip(sender: Made) -> None:
    of = sender(swift, **FLAT)
    assert of.after(25) == 10
    of.state.now_ps += 50 * US_PS
    fallen = of.after(40)
    assert fallen == pytest.approx(10 * (1 - 0.8 * 15 / 40))
    of.state.now_ps += 39 * US_PS
    assert of.after(40) == fallen
    of.state.now_ps += 1 * US_PS
    assert of.after(40) < fallen
    of.own.window = 10
    of.state.now_ps += 1000 * US_PS
    assert of.after(1000) == 5  # by the largest part at most


def test_the_target_of_swift_has_a_part_for_switches_and_one_for_small_windows(sender: Made) -> None:
    rules = sender(swift).rules
    assert swift.target_ps(rules, 100, 0) == 25 * US_PS
    assert swift.target_ps(rules, 500, 2) == (25 + 2 * 3.817) * US_PS
    assert swift.target_ps(rules, 0.1, 0) == pytest.approx((25 + 125) * US_PS)
    assert swift.target_ps(rules, 0.01, 0) == pytest.approx((25 + 125) * US_PS)
    alpha = 125 / (1 / sqrt(0.1) - 1 / sqrt(100))
    assert swift.target_ps(rules, 4, 1) == pytest.approx((25 + 3.817 + alpha * (1 / 2 - 1 / 10)) * US_PS)


def test_the_window_of_swift_keeps_its_limits(sender: Made) -> None:
    of = sender(swift, **FLAT, least_window=0.25, most_window=10.05)
    assert of.after(1) == 10.05
    for _ in range(12):
        of.state.now_ps += 10_000 * US_PS
        of.after(5_000)
    assert (of.own.window, of.pair.window) == (0.25, PAYLOAD)


def test_swift_sends_a_packet_every_few_round_trips_below_a_window_of_one(sender: Made) -> None:
    of = sender(swift, **FLAT)
    of.own.window = 0.5
    assert of.after(50) == 0.5 * (1 - 0.8 * 25 / 50)
    assert of.pair.rate == int(0.3 * PAYLOAD * 8 / 50e-6)
    of.state.now_ps += 100 * US_PS
    of.after(10)
    assert (of.own.window, of.pair.rate) == (1.3, LINE)


def test_swift_halves_its_window_after_losses_and_takes_the_least_after_timeouts(sender: Made) -> None:
    of = sender(swift, **FLAT)
    of.packet.kind = NEGATIVE
    assert [of.after(1), of.after(1)] == [5, 5]  # once in a round trip
    for number in range(1, 6):
        of.state.now_ps += 1000 * US_PS
        swift.timed_out(of.network, 0)
        assert of.own.window == (0.001 if number == 5 else 5 / 2**number)
    of.packet.kind = ACKNOWLEDGEMENT
    of.after(1)
    assert of.own.timeouts == 0


@pytest.mark.parametrize("control", ["swift", "powertcp"])
def test_a_message_alone_has_the_line_rate(control: str) -> None:
    (time,) = finishes(incast(control, 1, 200_000))
    assert time == 200_000 * 8 // 100 + 2 * 500 + PAYLOAD * 8 // 100


@pytest.mark.parametrize(("control", "spread"), [("swift", 1.01), ("powertcp", 1.05)])
def test_messages_share_a_link_fairly_and_fill_it(control: str, spread: float) -> None:
    senders, size = 4, 400_000
    times = finishes(incast(control, senders, size))
    assert max(times) < 1.03 * senders * size * 8 // 100
    assert max(times) / min(times) < spread


def noted(time_ns: int, units: int, queue: int) -> int:
    """Return a figure of a header: 24 bits of time, 20 of bytes sent, then those that wait."""
    return time_ns | units << 24 | queue << 44


def test_powertcp_divides_the_rate_of_a_round_by_the_power_and_adds_a_step(sender: Made) -> None:
    """Check 5 of 10 us: a link of 12.5 bytes per ns sends 51,200 bytes, and its queue grows to 20,000."""
    of = sender(powertcp)
    control: Any = SimpleNamespace(
        rules=of.network.control.rules, senders=[of.own], noted=[noted(1000, 7, 0)] * 5, known=[0] * 5
    )
    of.network.control, of.packet.sequence = control, 1
    powertcp.acknowledged(of.network, 0, 0)
    assert (of.pair.rate, of.own.update_at, of.own.round_rate) == (LINE, 10_000, LINE)
    of.pair.rate = 60 * 10**9
    control.noted = [noted(6000, 407, 250)] * 5
    powertcp.acknowledged(of.network, 0, 0)
    current = (400 * 128 + 250 * 80) / 5000
    voltage = 250 * 80 + 12.5 * 10_000
    power = (1.0 * 5 + current * voltage / (12.5 * 12.5 * 10_000) * 5) / 10
    assert of.own.power == pytest.approx(power)
    assert of.pair.rate == int(0.9 * (LINE / power + LINE / 10) + 0.1 * 60 * 10**9)
    assert of.own.round_rate == LINE  # the round is not over


@pytest.mark.parametrize(("senders", "flows"), [(2, 10), (4, 10), (4, 20)])
def test_the_queue_of_powertcp_settles_at_the_steps_of_all_senders(senders: int, flows: int) -> None:
    """Check the line rate divided by the expected flows, for each sender, over a round trip."""
    result = incast("powertcp", senders, 400_000, **{"expected-flows": flows})
    assert settled_queue(result) == pytest.approx(senders / flows * BASE_PS * BYTES_PER_PS, rel=0.3)


@pytest.mark.parametrize("keys", [{}, {"window": "none", "most-window": 30}])
def test_swift_keeps_the_round_trip_at_its_target(keys: dict[str, Any]) -> None:
    result = incast("swift", 4, 400_000, **keys, **TARGET_ALONE, **{"target-rtt": "8us"})
    assert settled_queue(result) == pytest.approx((8 * US_PS - BASE_PS) * BYTES_PER_PS, abs=2 * PAYLOAD)


def test_swift_shares_a_link_among_more_flows_than_packets_of_its_target() -> None:
    """Check 3 us, in which the link carries 37 packets, less than one of each of 64 senders."""
    keys = {"target-rtt": "3us", "most-window": 1, "window-step": 0.1, **TARGET_ALONE}
    result = incast("swift", 64, 60_000, **keys)
    assert settled_queue(result) < 20 * PAYLOAD  # with a packet of each on its way, 37 would wait
    assert max(finishes(result)) < 1.3 * 64 * 60_000 * 8 // 100


def test_swift_loses_fewer_packets_than_senders_without_control() -> None:
    lossy = {"pauses": False, "queue-packets": 20, "retransmission-timeout": "50us"}
    swift_lost, lost = (
        incast(control, 8, 50_000, **lossy).outcome.run.network.state[0].lost for control in ("swift", "none")
    )
    assert 0 < swift_lost < lost / 2


@pytest.mark.parametrize("name", [*ROCE, *TCP])
def test_machine_code_takes_the_tables_of_each_control(name: str) -> None:
    packets = Packets(control=Control(name)) if name in ROCE else Packets(tcp=Tcp(control=name))
    made = controls.new_control(PacketProtocol(PAYLOAD, packets=packets))
    for field in fields_of(type(made)):
        from_dtype(getattr(made, field).dtype)


def test_a_control_is_a_module_and_an_entry_of_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    monkeypatch.setattr(controls, "ROCE", {**ROCE, "own": "own_control"})
    for constants, rate in (((), 25), ((("divisor", 2),), 50)):
        packets = Packets(control=Control("own", constants=constants))
        protocol = PacketProtocol(PAYLOAD, store_and_forward=True, packets=packets)
        monkeypatch.setattr(model, "protocol_of", lambda _, protocol=protocol: protocol)
        result = incast("none", 1, 100_000)
        (time,) = finishes(result)
        assert time == 99_000 * 8 // rate + 2 * (500 + PAYLOAD * 8 // 100)
        assert result.outcome.run.network.control.senders["answers"].max() == 100


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        (
            {"target-range-from": 100},
            "target-range-from is 100 packets, and target-range-to is not more, 100 packets",
        ),
        ({"most-window": 0.001}, "least-window is 0.001 packets, and most-window is not more"),
        ({"window-step": 0}, "allowed: a number > 0"),
        ({"expected-flows": 0}, "allowed: an integer >= 1"),
    ],
)
def test_faults_of_their_keys_are_reported(keys: dict[str, Any], text: str) -> None:
    with pytest.raises(MachineError) as caught:
        read_network_alone(star(2, "swift", **keys))
    assert text in str(caught.value)


def test_windows_have_a_limit_that_tables_can_store() -> None:
    read_network_alone(star(2, "swift", **{"most-window": 1 << 30}))
    with pytest.raises(MachineError, match="most-window"):
        read_network_alone(star(2, "swift", **{"most-window": (1 << 30) + 1}))
