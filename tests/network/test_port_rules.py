"""Ports of the analytical network pass messages on from the first byte: closed forms over several of them."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import pytest
from machines import network, sends, simulate, system

SLOW, FAST, MIDDLE = 10, 100, 40  # bytes per nanosecond
THREE = ["FullyConnected"] * 3


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")


def arrival(messages: list[tuple[int, int, int]], latency: str, *bandwidths: int) -> int:
    """Return when the first of the messages arrives at its rank."""
    figures = [f"{bandwidth}GB/s" for bandwidth in bandwidths]
    net = network(THREE, [2, 2, 2], list(figures), float(latency))
    result = simulate(sends(8, messages), net, system(dimensions=3, profile="corrected"))
    return int(result.finish_ns[messages[0][1]])


def test_parts_of_nanoseconds_add_up_over_several_ports() -> None:
    """Check the latency of each port and one serialisation, at the slowest port."""
    for latency, bandwidths in product(("500.3", "499.9"), ((SLOW, FAST, MIDDLE), (FAST, MIDDLE, SLOW))):
        for size in (10_007, 10_004):
            exact = 3 * Fraction(latency) + Fraction(size, SLOW)
            assert arrival([(0, 7, size)], latency, *bandwidths) == int(exact)


def test_a_message_that_waits_at_a_port_gains_the_time_by_which_its_last_byte_was_behind() -> None:
    """Meet another message at the second or third port, where that one began at 0."""
    size = 10_007
    for latency, other in product((Fraction("500.3"), Fraction("499.9")), (80_033, 130_001, 145_021)):
        alone = 3 * latency + Fraction(size, SLOW)
        behind = Fraction(other, FAST) + 2 * latency + Fraction(size, MIDDLE)
        found = arrival([(0, 7, size), (1, 3, other)], str(float(latency)), SLOW, FAST, MIDDLE)
        assert found == int(max(alone, behind)), other
        other += 50_000
        behind = Fraction(other, FAST) + latency + Fraction(size, FAST)
        found = arrival([(0, 7, size), (3, 7, other)], str(float(latency)), SLOW, MIDDLE, FAST)
        assert found == int(max(alone, behind)), other


def test_a_message_that_waits_at_two_ports_gains_the_time_once() -> None:
    """Follow other messages at the second and third port."""
    size, latency = 10_007, 500
    for first, second in ((130_003, 250_006), (130_003, 220_009), (80_033, 249_001)):
        at_second = max(Fraction(first, FAST), Fraction(latency))
        at_third = max(at_second + latency, Fraction(second, FAST))
        exact = max(3 * latency + Fraction(size, SLOW), at_third + latency + Fraction(size, FAST))
        messages = [(0, 7, size), (1, 3, first), (3, 7, second)]
        assert arrival(messages, str(latency), SLOW, FAST, FAST) == int(exact)
