"""The LogGOPS model under the rules of LogGOPSim before ATLAHS, against independent code of these rules."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from goal_texts import rank_texts, workload_of
from hypothesis import given
from hypothesis import strategies as st
from loggopsim_rules import CALC, RECEIVE, SEND, Operation, Simulation

from et_sim import simulate
from et_sim.basics.errors import StallError

CHOICES: dict[str, tuple[float, ...]] = {
    "L": (0, 10, 50),
    "o": (0, 10, 20),
    "g": (0, 10, 30),
    "G": (0, 1, 2.5),
    "O": (0, 1, 3),
    "S": (0, 5, 100),
}  # few values, so that many things happen at one time


def random_ranks(random: Random) -> list[list[Operation]]:
    """Return at most a dozen calculations and messages; in a rank, each comes after up to two before it."""
    ranks: list[list[tuple[int, ...]]] = [[] for _ in range(random.randint(2, 4))]
    for _ in range(random.randint(1, 12)):
        sender, other = random.sample(range(len(ranks)), 2)
        if random.random() < 0.3:
            ranks[sender].append((CALC, random.choice((0, 10, 50, 100))))
        else:
            size, tag = random.choice((0, 1, 11, 21)), random.randrange(2)
            ranks[sender].append((SEND, size, other, tag))
            ranks[other].append((RECEIVE, size, sender, tag))
    for rows in ranks:
        random.shuffle(rows)
    return [
        [
            Operation(*fields[:4], after=tuple(random.sample(range(row), random.randint(0, min(row, 2)))))
            for row, fields in enumerate((*fields_of_row, 0, 0) for fields_of_row in rows)
        ]
        for rows in ranks
    ]


def as_text(ranks: list[list[Operation]]) -> str:
    bodies = []
    for operations in ranks:
        body = [f"l{row}: {operation.text}" for row, operation in enumerate(operations)]
        for row, operation in enumerate(operations):
            body += [f"l{row} requires l{before}" for before in operation.after]
        bodies.append(body)
    return rank_texts(len(ranks), bodies)


def ends_of_ranks(ranks: list[list[Operation]], constants: dict[str, Any]) -> list[int] | None:
    """Return the ends of the ranks on the model, or None if it stalls."""
    machine = {"loggops": {"npus": len(ranks), "rules": "loggopsim", **constants}}
    try:
        result = simulate(workload_of(as_text(ranks)), system={}, network=machine, model="loggops")
    except StallError:
        return None
    finish: list[int] = result.finish_ns.tolist()
    return finish


def agree(seed: int) -> list[int] | None:
    random = Random(seed)
    ranks = random_ranks(random)
    constants = {name: random.choice(values) for name, values in CHOICES.items()}
    expected = Simulation(ranks, constants)
    expected.run()
    finish = ends_of_ranks(ranks, constants)
    if finish is None:
        assert len(expected.ends) < sum(map(len, ranks))
    else:
        of_rank = [[expected.ends[rank, row] for row in range(len(rows))] for rank, rows in enumerate(ranks)]
        assert finish == [max(ends, default=0) for ends in of_rank]
    return finish


@given(st.integers(0, 10**9))
def test_random_schedules_end_by_the_rules(seed: int) -> None:
    agree(seed)


@pytest.mark.deep
def test_schedules_with_ties_end_by_the_rules_and_some_stall() -> None:
    assert sum(agree(seed) is None for seed in range(60)) == 6


@pytest.mark.deep
def test_compiled_and_interpreted_runs_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for compile_when in ("never", "now"):
        monkeypatch.setenv("ET_SIM_COMPILE", compile_when)
        results.append([agree(seed) for seed in range(40)])
    assert results[0] == results[1]
