"""Random numbers: the n-th of a sequence that a seed names, wherever it is drawn."""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables

MASK = 0xFFFFFFFF


@works_on_tables
def drawn(network: Any) -> float:
    """A number from 0 to below 1."""
    state = network.state[0]
    state.random += 1
    low, high = state.random & MASK, (state.random >> 32) ^ network.rules[0].seed
    for _ in range(4):  # rounds of a Feistel network over two halves
        low, high = high & MASK, low ^ mixed(high & MASK)
    return (low & MASK) / 4294967296.0


@works_on_tables
def mixed(word: int) -> int:
    """A word of 32 bits, stirred."""
    word = ((word ^ (word >> 16)) * 0x7FEB352D) & MASK
    word = ((word ^ (word >> 15)) * 0x846CA68B) & MASK
    return word ^ (word >> 16)
