"""Congestion control of RoCE: the rate of a pair, step by step, against the published rules."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from et_sim.engine.state.run import NONE
from et_sim.network.packet.calendar import new_calendar, set_event, with_timers
from et_sim.network.packet.roce import control, transport
from et_sim.network.packet.roce.controls import dcqcn, dctcp, hpcc, timely
from et_sim.network.packet.roce.pairs import timer_of

LINE, LEAST = 100_000, 1_000  # bits per second, as small as can be
US_PS = 1_000_000


class Sender:
    """One pair with its rules, and the timers that it sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, of: ModuleType, **rules: Any) -> None:
        self.timers: dict[int, int] = {}
        monkeypatch.setattr(dcqcn, "ring_at", lambda _, timer, time: self.timers.update({timer: time}))
        monkeypatch.setattr(dcqcn, "stop", lambda _, timer: self.timers.pop(timer, None))
        self.pair = SimpleNamespace(
            rate=LINE, line_rate=LINE, acknowledged=0, sent=10_000, base_ps=10 * US_PS
        )
        self.rules = SimpleNamespace(
            **{"least_rate": LEAST, "gain": 0.25, "clamps_target": 0, "recoveries": 2}
            | {"step": 10, "large_step": 1000, "dctcp_step": 10, "payload": 1000}
            | {"alpha_ps": 55 * US_PS, "decrease_ps": 50 * US_PS, "increase_ps": 300 * US_PS}
            | rules
        )
        self.packet = SimpleNamespace(sequence=0, is_marked=0, sent_ps=0)
        self.own = SimpleNamespace()
        self.of = of
        self.state = SimpleNamespace(now_ps=0)
        self.network = SimpleNamespace(
            transport=SimpleNamespace(pairs=[self.pair], rules=[self.rules]),
            control=SimpleNamespace(senders=[self.own], rules=[self.rules]),
            state=[self.state],
            flows=[SimpleNamespace(size=100_000)],
            packets=[self.packet],
        )
        of.begins(self.network, 0)

    def rings(self, timer: int) -> None:
        self.of.timer_rings(self.network, timer)

    def marked(self) -> None:
        self.packet.is_marked = 1
        self.of.acknowledged(self.network, 0, 0)

    def acknowledged(self, sequence: int, **packet: int) -> int:
        """Return the rate after an acknowledgement."""
        self.packet.sequence = sequence
        vars(self.packet).update(packet)
        self.of.acknowledged(self.network, 0, 0)
        return int(self.pair.rate)


Made = Callable[..., Sender]


@pytest.fixture
def sender(monkeypatch: pytest.MonkeyPatch) -> Made:
    def made(of: ModuleType, **rules: Any) -> Sender:
        return Sender(monkeypatch, of, **rules)

    return made


def test_dcqcn_sets_its_timers_at_the_first_mark_alone(sender: Made) -> None:
    of = sender(dcqcn)
    of.marked()
    first = {dcqcn.ALPHA: 55 * US_PS, dcqcn.DECREASE: 50 * US_PS + 1000}
    assert of.timers == first
    of.state.now_ps = 7
    of.marked()
    assert of.timers == first
    assert (of.own.marked_for_alpha, of.own.marked_for_rate) == (1, 1)


@pytest.mark.parametrize(("acknowledged", "timers"), [(99_999, 2), (100_000, 0)])
def test_dcqcn_sets_no_timer_when_all_is_acknowledged(sender: Made, acknowledged: int, timers: int) -> None:
    of = sender(dcqcn)
    of.pair.acknowledged = acknowledged
    of.marked()
    assert len(of.timers) == timers


def test_dcqcn_follows_marks_with_alpha(sender: Made) -> None:
    of = sender(dcqcn)
    of.marked()
    expected = 1.0
    for is_marked in (0, 0, 1, 0):
        of.own.marked_for_alpha = is_marked
        of.rings(dcqcn.ALPHA)
        expected = 0.75 * expected + 0.25 * is_marked
        assert of.own.alpha == expected
        assert of.own.marked_for_alpha == 0


def test_dcqcn_reduces_by_half_of_alpha_and_only_if_there_was_a_mark(sender: Made) -> None:
    of = sender(dcqcn)
    of.marked()
    of.own.alpha = 0.5
    of.rings(dcqcn.DECREASE)
    assert of.pair.rate == 75_000
    assert of.timers[dcqcn.INCREASE] == 300 * US_PS
    of.rings(dcqcn.DECREASE)
    assert of.pair.rate == 75_000
    of.own.marked_for_rate, of.own.alpha, of.pair.rate = 1, 1.0, LEAST + 1
    of.rings(dcqcn.DECREASE)
    assert of.pair.rate == LEAST


@pytest.mark.parametrize("clamps", [0, 1])
def test_dcqcn_keeps_its_target_in_reductions_one_after_the_other(sender: Made, clamps: int) -> None:
    """Check that only a rate that has risen meanwhile is a new target, unless every reduction sets it."""
    of = sender(dcqcn, clamps_target=clamps)
    of.marked()
    for rate in (50_000, 25_000):
        of.own.marked_for_rate = 1
        of.rings(dcqcn.DECREASE)
        assert of.pair.rate == rate
    assert of.own.target_rate == (50_000 if clamps else LINE)
    of.rings(dcqcn.INCREASE)
    risen = of.pair.rate
    assert risen == 25_000 // 2 + of.own.target_rate // 2
    for _ in range(2):
        of.own.marked_for_rate = 1
        of.rings(dcqcn.DECREASE)
        assert of.own.stage == 0
    assert of.own.target_rate == (risen // 2 if clamps else risen)


def test_dcqcn_recovers_then_adds_its_step_once_and_then_the_large_one(sender: Made) -> None:
    of = sender(dcqcn, recoveries=2)
    of.own.target_rate, of.pair.rate = 50_000, 10_000
    targets, rates = [], []
    for _ in range(5):
        of.rings(dcqcn.INCREASE)
        targets.append(of.own.target_rate)
        rates.append(of.pair.rate)
    assert targets == [50_000, 50_000, 50_010, 51_010, 52_010]
    assert rates == [30_000, 40_000, 45_005, 48_007, 50_008]
    of.own.target_rate = LINE - 1
    of.rings(dcqcn.INCREASE)
    assert of.own.target_rate == LINE


def test_timely_rises_below_its_low_time_and_falls_above_its_high_one(sender: Made) -> None:
    rules = {"as_ns3": 0, "timely_alpha": 0.5, "timely_beta": 0.8, "least_rtt_ps": 10_000_000}
    of = sender(timely, **rules, low_ps=20_000_000, high_ps=50_000_000)
    of.own.round_rate = of.pair.rate = 50_000

    def after(rtt_us: int, gradient: float = 0.0) -> int:
        of.state.now_ps += 1_000 * US_PS
        of.own.last_rtt_ps, of.own.rtt_difference = rtt_us * US_PS, gradient * 2 * 10_000
        rate = of.acknowledged(of.own.update_at + 1, sent_ps=of.state.now_ps - rtt_us * US_PS)
        of.pair.sent += 10_000
        return rate

    assert after(30) == 50_000  # the first round has none to compare with
    assert [after(19) for _ in range(6)] == [50_010, 50_020, 50_030, 50_040, 50_050, 51_050]
    assert after(100, -1) == int(51_050 * (1 - 0.8 * (1 - 50 / 100)))
    of.own.round_rate = 50_000
    assert after(20, 0.5) == int(50_000 * (1 - 0.8 * 0.5))
    assert after(20, 0) == 30_010
    assert after(50, 0) == 30_020
    assert after(50, 2) == LEAST
    steps = [10, 10, 10, 10, 10, 1000]  # as small again as after the first fall
    assert [after(19) for _ in steps] == [LEAST + sum(steps[: count + 1]) for count in range(len(steps))]
    of.own.round_rate = LINE
    assert after(1) == LINE


def test_timely_waits_for_the_end_of_a_round(sender: Made) -> None:
    of = sender(timely, as_ns3=0)
    of.acknowledged(1)
    assert of.own.update_at == 10_000
    of.pair.sent = 20_000
    of.acknowledged(10_000)
    assert of.own.update_at == 10_000
    of.pair.sent, of.state.now_ps, of.own.last_rtt_ps = 10_000, 5, 3  # nothing has been sent since
    of.rules.high_ps = of.rules.low_ps = of.rules.timely_alpha = 0
    of.rules.least_rtt_ps, of.rules.timely_beta = 1, 0.0
    of.acknowledged(10_001)
    assert of.own.last_rtt_ps == 3


def test_dctcp_reduces_once_a_round_by_half_of_the_marked_part(sender: Made) -> None:
    of = sender(dctcp)
    of.pair.rate = 80_000
    assert of.acknowledged(1) == 80_010  # the first round: ten packets are under way
    assert (of.own.update_at, of.own.packets) == (10_000, 11)
    of.pair.sent = 15_000
    assert of.acknowledged(2_000, is_marked=1) == 40_005
    assert of.acknowledged(10_000, is_marked=1) == 40_005
    of.pair.sent = 25_000
    assert of.acknowledged(10_001, is_marked=0) == 40_005  # still of the reduced window
    assert of.own.alpha == 0.75 * 1.0 + 0.25 * (2 / 11)
    assert (of.own.update_at, of.own.packets, of.own.marks) == (25_000, 15, 0)
    alpha = of.own.alpha
    assert of.acknowledged(15_000, is_marked=1) == 40_005
    assert of.acknowledged(15_001, is_marked=1) == int(40_005 * (1 - alpha / 2))


def test_dctcp_rises_by_its_step_in_a_round_without_reduction(sender: Made) -> None:
    of = sender(dctcp)
    of.pair.rate = LINE - 15
    of.acknowledged(1)
    assert of.pair.rate == LINE - 5
    of.pair.sent = 20_000
    assert of.acknowledged(10_000) == LINE - 5
    assert of.acknowledged(10_001) == LINE


def test_dctcp_takes_at_most_all_packets_as_marked(sender: Made) -> None:
    of = sender(dctcp)
    of.acknowledged(1)
    of.own.alpha, of.own.packets, of.own.marks = 0.0, 4, 9
    of.pair.sent = 20_000
    of.acknowledged(10_001)
    assert of.own.alpha == 0.25


def test_a_new_rate_also_holds_for_the_packet_that_was_sent_last(
    sender: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[int] = []
    monkeypatch.setattr(control, "rate_ps", lambda _, rate, size: size * 1000 // rate)
    monkeypatch.setattr(control, "wake_at", lambda _, __, time: woken.append(time))
    of = sender(dcqcn)
    port = SimpleNamespace(wakes=1, wakes_ps=700)
    of.network.flows[0].port, of.network.ports = 0, [port]
    of.pair.rate, of.pair.last_bytes, of.pair.next_ps = 2, 1, 900
    control.set_rate(of.network, 0, 1)
    assert (of.pair.rate, of.pair.next_ps, woken) == (1, 900 + 500, [])  # the port wakes before that anyway
    control.set_rate(of.network, 0, 10)
    assert (of.pair.next_ps, woken) == (1400 - 900, [500])
    of.state.now_ps, port.wakes_ps = 650, 700
    control.set_rate(of.network, 0, 20)
    assert woken == [500, 650]
    port.wakes = 0
    control.set_rate(of.network, 0, 40)
    assert woken == [500, 650]


def with_links(of: Sender, hops: int = 1, **rules: Any) -> None:
    """Set links of 100,000 bits per second, with space for the figures of five."""
    defaults = {"reacts_fast": 1, "samples": 0, "wanted_use": 0.5, "most_steps": 2, "units": 1}
    vars(of.rules).update(defaults | rules)
    of.network.flows[0].back = hops + 2
    of.pair.window = 0
    of.network.control.noted, of.network.control.known = [0] * 5, [0] * 5
    of.network.ways, of.network.stride = [0] * 8, [8]
    of.network.ports = [SimpleNamespace(bits_per_s=1024e5)]


def noted(time_ns: int, units: int, queue: int = 0) -> int:
    """Return a figure of a header: 24 bits of time, 20 of bytes sent, then those that wait."""
    return time_ns | units << 24 | queue << 44


def test_hpcc_follows_the_use_of_the_fullest_link(sender: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    of = sender(hpcc)
    with_links(of)
    monkeypatch.setattr(hpcc, "set_rate", lambda _, __, rate: setattr(of.pair, "rate", rate))
    of.network.control.noted = [noted(0, 0)] * 5
    assert of.acknowledged(1) == LINE  # the first one is only kept
    assert of.own.update_at == 10_000
    # In a round trip of 10 us, the link carries 1,024 bits: one unit of 128 bytes.
    of.network.control.noted = [noted(10_000, 1)] * 5
    of.own.utilisation, of.pair.sent = 1.0, 20_000
    rate = of.acknowledged(10_001)
    assert of.own.utilisation == pytest.approx(1.0)
    assert rate == LINE // 2 + 10  # half of it is wanted, and then comes the step
    assert (of.own.round_rate, of.own.stage, of.own.update_at) == (rate, 0, 20_000)


def test_hpcc_keeps_the_rate_of_the_round_within_it(sender: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hpcc, "set_rate", lambda _, __, rate: setattr(of.pair, "rate", rate))
    of = sender(hpcc)
    with_links(of)
    of.own.update_at, of.own.utilisation, of.own.round_rate = 10_000, 0.0, 50_000
    of.network.control.noted = [noted(10_000, 0)] * 5
    assert [of.acknowledged(10_000) for _ in range(3)] == [50_010] * 3
    assert (of.own.round_rate, of.own.stage, of.own.update_at) == (50_000, 0, 10_000)
    of.rules.reacts_fast, of.pair.rate = 0, 7
    assert of.acknowledged(10_000) == 7


def test_hpcc_raises_by_its_step_so_often_and_then_by_the_use(
    sender: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hpcc, "set_rate", lambda _, __, rate: setattr(of.pair, "rate", rate))
    of = sender(hpcc)
    with_links(of, most_steps=2)
    of.own.update_at, of.own.round_rate = 10_000, 20_000
    rates = []
    for _ in range(3):
        of.own.utilisation, of.pair.sent = 0.25, of.pair.sent + 10_000
        of.network.control.noted = list(of.network.control.known)  # nothing was sent, in no time
        rates.append(of.acknowledged(of.own.update_at + 1))
    assert rates == [20_010, 20_020, 40_050]


def test_hpcc_counts_the_shorter_queue_and_the_bytes_of_a_link_as_its_use(
    sender: Made,
) -> None:
    of = sender(hpcc)
    with_links(of)
    of.pair.window = 1000
    before, after = noted(0, 5, 3), noted(10_000, 6, 2)
    in_queue = 2 * 80 * LINE / 1024e5 / 1000
    assert hpcc._use(of.network, 0, 0, after, before, 10_000) == pytest.approx(1 + in_queue)
    assert hpcc._use(of.network, 0, 0, before, after, 10_000) == pytest.approx(
        (1 << 20) - 1 + in_queue  # the count of bytes starts again
    )


def test_hpcc_may_leave_out_links_without_a_queue_within_a_round(
    sender: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hpcc, "set_rate", lambda _, __, rate: setattr(of.pair, "rate", rate))
    of = sender(hpcc)
    with_links(of, samples=1)
    of.own.update_at, of.own.utilisation, of.own.round_rate, of.pair.rate = 10_000, 0.0, 50_000, 7
    of.network.control.noted = [noted(10_000, 0)] * 5
    assert of.acknowledged(10_000) == 7
    assert of.acknowledged(10_001) == 50_010


def test_hpcc_weighs_new_figures_by_their_part_of_a_round_trip(
    sender: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that the first of equally full links counts, and that times beyond a round trip count in full."""
    monkeypatch.setattr(hpcc, "set_rate", lambda _, __, rate: setattr(of.pair, "rate", rate))
    monkeypatch.setattr(hpcc, "_use", lambda *_: 0.5)
    of = sender(hpcc)
    for times, alpha in (((2_500, 5_000), 0.25 * 0.5 + 0.75), ((20_000, 5_000), 0.5)):
        with_links(of, hops=2, wanted_use=0.5)
        of.own.update_at, of.own.utilisation, of.own.stage = 10_000, 1.0, 1
        of.network.control.noted = [noted(time, 0) for time in times] + [0] * 3
        of.pair.sent += 10_000
        of.acknowledged(10_001)
        assert of.own.utilisation == alpha
        assert of.own.stage == 0  # from the wanted use on, the rate follows the use


@pytest.mark.parametrize(("hops", "rate"), [(5, 50_010), (6, LINE)])
def test_hpcc_has_room_for_the_figures_of_five_links(
    sender: Made, monkeypatch: pytest.MonkeyPatch, hops: int, rate: int
) -> None:
    monkeypatch.setattr(hpcc, "set_rate", lambda _, __, rate: setattr(of.pair, "rate", rate))
    of = sender(hpcc)
    with_links(of, hops)
    of.own.update_at, of.own.utilisation, of.own.round_rate = 10_000, 0.0, 50_000
    of.network.control.noted = [noted(10_000, 0)] * 5
    assert of.acknowledged(10_001) == rate


def test_hpcc_headers_have_the_time_the_bytes_and_the_queue_of_a_port(sender: Made) -> None:
    of = sender(hpcc)
    with_links(of)
    of.packet.hop, of.state.now_ps = 5, (1 << 24) * 1000 + 7_999
    hpcc.passes(of.network, 0, SimpleNamespace(bytes=3 * 128 + 127, queued=4 * 80 + 79))
    assert of.network.control.noted == [0, 0, 0, 0, noted(7, 3, 4)]
    of.packet.hop = 6
    hpcc.passes(of.network, 0, SimpleNamespace(bytes=0, queued=0))
    assert of.network.control.noted == [0, 0, 0, 0, noted(7, 3, 4)]


def test_the_state_of_a_message_is_described_by_distances_and_counts_each_in_a_place_of_its_own() -> None:
    """Check that positions of bytes are relative to each other, and times to the present."""
    pair = SimpleNamespace(
        sent=500,
        acknowledged=400,
        highest=530,
        expected=450,
        next_ps=1007,
        window=71,
        rate=72,
        last_bytes=73,
        refused=450,
        refused_ps=1011,
    )
    flow = SimpleNamespace(packets=74, retransmitted=75, size=501, is_reported=1)
    calendar = with_timers(new_calendar(3, 1), 40)
    network: Any = SimpleNamespace(
        state=[SimpleNamespace(now_ps=1000, order=20)],
        transport=SimpleNamespace(pairs=[None, None, pair]),
        flows=[None, None, flow],
        ports=[None] * 3,
        calendar=calendar,
        repeats=[SimpleNamespace(entries=0, compares=0)],
        picture=[],
    )

    def described() -> list[int]:
        network.picture = [99] * 17
        end = transport._describe_pair(network, 1, 2)
        assert network.picture[0] == network.picture[end] == 99
        return network.picture[1:end]

    assert described() == [2, 30, -100, -50, 7, 71, 72, 73, 11, 74, 75, 1, 1, NONE]
    set_event(calendar, len(network.ports) + timer_of(2), 1013, 26, 1000)
    pair.next_ps, pair.refused, flow.size = 993, 449, 500
    assert described() == [2, 30, -100, -50, 0, 71, 72, 73, 0, 74, 75, 0, 1, 13, 6]
