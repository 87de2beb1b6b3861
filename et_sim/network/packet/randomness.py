"""Random numbers: a sequence by seed, or those of ns-3.

ns-3 takes the first number of another stream of its generator (MRG32k3a, of L'Ecuyer, seed 1, run 1) every
time; the network determines how many streams were used before.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.compiled.tables_by_reference import works_on_tables

MASK = 0xFFFFFFFF
MODULUS, OTHER_MODULUS = 4294967087, 4294944443
COEFFICIENTS = ((0, 1403580, -810728), (527612, 0, -1370589))  # of the earlier numbers, the last one first
STREAM_BITS, RUN_BITS = 127, 76  # of the distance between streams, and between runs within one
STREAMS_PER_DEVICE, STREAMS_OF_ERRORS = 9, 2  # streams that ns-3 has used when a run begins


@works_on_tables
def drawn(network: Any) -> float:
    """Return a random number in [0, 1)."""
    state = network.state[0]
    state.random += 1
    if network.rules[0].as_ns3:
        return _of_next_stream(network)
    low, high = state.random & MASK, (state.random >> 32) ^ network.rules[0].seed
    for _ in range(4):  # rounds of a Feistel network over two halves
        low, high = high & MASK, low ^ mixed(high & MASK)
    return (low & MASK) / 4294967296.0


@works_on_tables
def mixed(word: int) -> int:
    """Return a mixed word of 32 bits."""
    word = ((word ^ (word >> 16)) * 0x7FEB352D) & MASK
    word = ((word ^ (word >> 15)) * 0x846CA68B) & MASK
    return word ^ (word >> 16)


@works_on_tables
def _of_next_stream(network: Any) -> float:
    """Return the first number of the present stream, and advance to the next stream."""
    now, step = network.streams, network.stream_step
    first = (1403580 * now[1] - 810728 * now[0]) % MODULUS
    second = (527612 * now[5] - 1370589 * now[3]) % OTHER_MODULUS
    _jump(now, step, 0, MODULUS)
    _jump(now, step, 3, OTHER_MODULUS)
    return (first - second if first > second else first - second + MODULUS) / (MODULUS + 1.0)


@works_on_tables
def _jump(now: Any, step: Any, first: int, modulus: int) -> None:
    """Advance one part of the generator's state to the next stream."""
    a, b, c = now[first], now[first + 1], now[first + 2]
    for row in range(3):
        at = 3 * (first + row)
        total = _times(step[at], a, modulus) + _times(step[at + 1], b, modulus)
        now[first + row] = (total + _times(step[at + 2], c, modulus)) % modulus


@works_on_tables
def _times(factor: int, number: int, modulus: int) -> int:
    """Return a product of numbers of 32 bits without overflow."""
    return (((factor >> 16) * number % modulus << 16) + (factor & 0xFFFF) * number) % modulus


def streams_of_ns3(devices: int) -> tuple[Any, Any]:
    """Return the generator's state after ns-3 has set up the devices, and the matrix to the next stream."""
    used = STREAMS_PER_DEVICE * devices + STREAMS_OF_ERRORS
    now: list[int] = []
    step: list[int] = []
    for modulus, (last, second, third) in zip((MODULUS, OTHER_MODULUS), COEFFICIENTS, strict=True):
        matrix = np.array([[0, 1, 0], [0, 0, 1], [third, second, last]], object) % modulus
        stream = _power(matrix, 1 << STREAM_BITS, modulus)
        before = _power(stream, used, modulus) @ _power(matrix, 1 << RUN_BITS, modulus) % modulus
        now += list(before @ np.array([1, 1, 1], object) % modulus)
        step += list(stream.reshape(-1))
    return np.array(now, np.int64), np.array(step, np.int64)


def _power(matrix: Any, exponent: int, modulus: int) -> Any:
    """Return a power of a matrix, modulo a number."""
    power = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1]], object)
    while exponent:
        if exponent & 1:
            power = power @ matrix % modulus
        matrix = matrix @ matrix % modulus
        exponent >>= 1
    return power
