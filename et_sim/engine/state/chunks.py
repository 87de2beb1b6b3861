"""Chunks of collectives: the numbers that they have from their group and their collective."""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.state.records import PHASE_KEY_BITS
from et_sim.engine.state.run import Run

ONLY_SENDS = 2  # in place of `started`: a phase only waits for its messages to leave


@works_on_tables
def sequence_of(chunk: Any) -> int:
    """Return the number of a chunk within its group."""
    return chunk.phase_key >> PHASE_KEY_BITS


@works_on_tables
def priority_of(run: Run, chunk_row: int) -> int:
    """Return the priority of a chunk: its collective's."""
    return run.running[run.visits[chunk_row].running].priority


@works_on_tables
def chunk_home(run: Run, member: int, sequence: int) -> int:
    """Return the place in the index where the search for a chunk begins; members in step are neighbours."""
    return (sequence * 40503 + member) & (len(run.chunk_index) - 1)


@works_on_tables
def unexpected_home(run: Run, member: int, step_key: int, phase_key: int) -> int:
    """Return the place in the index where the search for an unexpected message begins."""
    mixed = (member << 5) ^ step_key ^ (step_key >> 11) ^ phase_key ^ (phase_key >> PHASE_KEY_BITS)
    return mixed & (len(run.unexpected_index) - 1)
