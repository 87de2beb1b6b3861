"""Point-to-point messages on the analytical network: flight times and matching."""

from __future__ import annotations

from math import prod

import pytest
from machines import finish_times, network, sends, system

from et_sim.trace import TraceBuilder

MIB = 1 << 20
PAIR = network(["FullyConnected"], [2])


def one_message(net: dict, source: int, target: int, size: int = MIB) -> int:
    times = finish_times(sends(prod(net["npus_count"]), [(source, target, size)]), net)
    assert times[source] == times[target]
    return times[target]


@pytest.mark.parametrize(
    ("shape", "expected"), [("Ring", 21031), ("FullyConnected", 20031), ("Switch", 20531)]
)
def test_a_message_is_charged_latency_per_hop_and_serialisation_once(shape: str, expected: int) -> None:
    assert one_message(network([shape], [16]), 1, 4) == expected


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [(0, 1, 4932), (37, 41, 10265), (26, 42, 23531), (3, 19, 23531), (0, 63, 4932)],
)
def test_only_the_lowest_dimension_that_differs_is_charged(source: int, target: int, expected: int) -> None:
    shapes = ["Ring", "FullyConnected", "Switch"]
    net = network(shapes, [2, 8, 4], [200, 100, 50], [50, 500, 2000])
    assert one_message(net, source, target) == expected


def test_fractions_of_a_nanosecond_are_dropped_once_per_message() -> None:
    assert one_message(network(["Ring"], [4], latency=0.7), 0, 2, 50) == 2


def test_large_messages_do_not_overflow() -> None:
    assert one_message(network(["Ring"], [4]), 0, 1, 5_000_000_000) == 93_132_757


def pair() -> tuple[TraceBuilder, TraceBuilder]:
    return TraceBuilder(), TraceBuilder()


def test_a_late_receive_completes_when_posted_and_does_not_hold_up_the_sender() -> None:
    sender, receiver = pair()
    sender.send(1, MIB)
    wait = receiver.compute(micros=100)
    receiver.receive(0, MIB, after=[wait])
    assert finish_times([sender, receiver], PAIR) == [20031, 100000]


def test_a_late_send_holds_up_the_receiver() -> None:
    sender, receiver = pair()
    wait = sender.compute(micros=100)
    sender.send(1, MIB, after=[wait])
    receiver.receive(0, MIB)
    assert finish_times([sender, receiver], PAIR) == [120031, 120031]


def test_equal_messages_match_in_order() -> None:
    sender, receiver = pair()
    first = sender.send(1, MIB)
    sender.send(1, MIB, after=[first])
    receiver.receive(0, MIB)
    receiver.receive(0, MIB)
    assert finish_times([sender, receiver], PAIR) == [40062, 40062]


@pytest.mark.parametrize(("size", "tag"), [(MIB - 1, 0), (MIB, 1)])
def test_another_size_or_tag_never_matches(size: int, tag: int) -> None:
    sender, receiver = pair()
    sender.send(1, MIB, tag=0)
    receiver.receive(0, size, tag=tag)
    assert finish_times([sender, receiver], PAIR) == [20031, -1]


def test_tags_repeat_after_five_hundred_million() -> None:
    sender, receiver = pair()
    sender.send(1, MIB, tag=500_000_003)
    receiver.receive(0, MIB, tag=3)
    assert finish_times([sender, receiver], PAIR) == [20031, 20031]


def test_sends_of_one_rank_take_turns_and_receives_do_not() -> None:
    builders = sends(3, [(0, 1, MIB), (0, 2, MIB)])
    assert finish_times(builders, network(["FullyConnected"], [3])) == [40062, 20031, 40062]


def test_a_message_without_bytes_takes_the_latency() -> None:
    assert one_message(network(["FullyConnected"], [4]), 0, 1, 0) == 500


def test_a_message_to_oneself_takes_no_time() -> None:
    builder = TraceBuilder()
    builder.send(0, MIB)
    builder.receive(0, MIB)
    builder.compute(micros=1)
    assert finish_times([builder, TraceBuilder()], PAIR) == [1000, 0]


@pytest.mark.parametrize(
    ("model", "links", "serialisations"), [("analytical", 0, 0), ("link", 2, 2), ("flow", 2, 1)]
)
def test_a_message_to_oneself_passes_a_switch_where_links_are_simulated(
    model: str, links: int, serialisations: int
) -> None:
    builder = TraceBuilder()
    builder.send(0, 50_000)
    builder.receive(0, 50_000)
    machine = network(["Switch"], [2], "50GB/s")
    assert finish_times([builder, TraceBuilder()], machine, model=model) == [
        500 * links + 1000 * serialisations,
        0,
    ]


RENDEZVOUS = system(**{"rendezvous-protocol": 1})


def test_a_request_that_comes_early_frees_one_message_only() -> None:
    sender, receiver = pair()
    wait = sender.compute(micros=10)
    first = sender.send(1, MIB, after=[wait])
    sender.send(1, MIB, after=[first])
    receiver.receive(0, MIB)
    late = receiver.compute(micros=100)
    receiver.receive(0, MIB, after=[late])
    times = finish_times([sender, receiver], PAIR, RENDEZVOUS)
    assert times == [100_000 + 652 + 20_031] * 2


def test_a_message_freed_by_the_request_for_another_size_waits_for_its_own() -> None:
    sender, receiver = pair()
    first = sender.send(1, 1000)
    sender.send(1, MIB, after=[first])
    receiver.receive(0, MIB)
    wait = receiver.compute(micros=1)
    small = receiver.receive(0, 1000, after=[wait])
    receiver.compute(micros=50, after=[small])
    times = finish_times([sender, receiver], PAIR, RENDEZVOUS)
    assert times == [1000 + 652 + 20_031, 1000 + 652 + 50_000]  # the message was there at 652 + 518


def test_the_pipeline_example() -> None:
    sender, receiver = pair()
    a = sender.compute(micros=10)
    sender.send(1, MIB, after=[a])
    b = sender.compute(micros=10, after=[a])
    sender.send(1, MIB, after=[b])
    first = receiver.receive(0, MIB)
    second = receiver.receive(0, MIB)
    c = receiver.compute(micros=15, after=[first])
    receiver.compute(micros=15, after=[second, c])
    assert finish_times([sender, receiver], PAIR) == [50062, 65062]
