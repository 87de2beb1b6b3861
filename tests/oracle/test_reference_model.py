"""Every rank and node has the times of an independent second model of the reference's rules."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cases import Case, all_cases, nodes_of
from reference_cases import chunks, custom, messages
from reference_model import Rank, simulate

from et_sim.api import run

MODELLED = {"COMP", "SEND", "RECV", "COLL", "INVALID"}
PER_TEST = 30
LATER = range(PER_TEST, 120, PER_TEST)


def is_modelled(case: Case) -> bool:
    """Return whether a golden case is small, and the second model has all of it."""
    nodes = [node for program in case.content["workload"]["programs"] for node in program["nodes"]]
    others = ("model-shared-bus", "roofline-enabled", "replay-only", "track-local-mem")
    return (
        case.category in ("custom", "groups", "p2p", "rendezvous", "queues", "fuzz", "involved_dim")
        and case.status == "ok"
        and case.ranks <= 8
        and not any(case.system.get(key) for key in others)
        and all(re.fullmatch(r"ring|direct\d*", name) for name in case.algorithms)
        and {node["t"] for node in nodes} <= MODELLED
        and all(node.get("cpu", False) is not None for node in nodes)
        and all(node.get("a", {}).get("comm_type") != "BROADCAST" for node in nodes)
    )


GOLDEN = [case for case in all_cases() if is_modelled(case)]


def times(rank: Rank) -> dict[int, list[int]]:
    """Return [start, end] of the nodes that were issued, by id; -1 is never."""
    return {node: [start, rank.end_ns.get(node, -1)] for node, start in rank.start_ns.items()}


def test_many_golden_cases_are_modelled() -> None:
    assert len(GOLDEN) > 150
    assert {case.category for case in GOLDEN} >= {"custom", "groups", "p2p", "rendezvous"}


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case.name)
def test_the_second_model_equals_the_reference(case: Case) -> None:
    ranks = simulate(case)
    assert [rank.finish_ns for rank in ranks] == case.expected_finish()
    for rank, expected in case.expected_nodes().items():
        assert times(ranks[rank]) == expected


@pytest.mark.parametrize("first", [0, *(pytest.param(seed, marks=pytest.mark.deep) for seed in LATER)])
@pytest.mark.parametrize("draw", [messages, custom, chunks])
def test_random_cases_have_the_times_of_the_second_model(
    draw: Callable[[int], Case], first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for seed in range(first, first + PER_TEST):
        case = draw(seed)
        case.write_programs(tmp_path)
        result = run(case.workload(), **case.machine, model=case.model, fold=False)
        assert seen(result, case.ranks) == [times(rank) for rank in simulate(case)], f"seed {seed}"


def seen(result: Any, ranks: int) -> list[dict[int, list[int]]]:
    """Return the same of a result."""
    return [
        {node: span for node, span in nodes_of(result, rank).items() if span[0] >= 0} for rank in range(ranks)
    ]
