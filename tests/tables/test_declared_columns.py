"""Columns are declared as text, one line for each."""

from __future__ import annotations

import pytest

from et_sim.tables.declaration import Column, columns
from et_sim.tables.sweep_tables import FIGURES, Best


def test_a_line_declares_name_type_table_runs_and_meaning() -> None:
    assert columns("""
        node uint64: the node
        actor int32? -> actors: the actor: null for a switch
        kind word (only of layer files): what it does (in words)
        bound text? -> actors (only of machines with the key `compute`): `launch` or
            `tiles`, a
            level
    """) == (
        Column("node", "uint64", "the node"),
        Column("actor", "int32?", "the actor: null for a switch", refers_to="actors"),
        Column("kind", "word", "what it does (in words)", only_of="layer files"),
        Column("bound", "text?", "`launch` or `tiles`, a level", "actors", "machines with the key `compute`"),
    )


@pytest.mark.parametrize(
    "line", ["node: the node", "node uint64", "node uint64:", "two names uint64: the node"]
)
def test_a_line_that_lacks_a_part_is_refused(line: str) -> None:
    with pytest.raises(AssertionError, match=line):
        columns(f"\n  {line}\n")


def test_a_note_states_the_best_extreme_of_a_figure() -> None:
    best = {figure.name: figure.best for figure in FIGURES}
    assert (best["makespan_ns"], best["mfu"], best["low_ns"]) == (Best.LEAST, Best.MOST, None)
