"""Every view of a folded run equals that of the unfolded one: for all ranks, and for any of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from random_cases import Case, random_case

from et_sim.api import run
from et_sim.basics.errors import EtSimError
from et_sim.timeline import write_run
from et_sim.views import RunDirectory, open_run
from et_sim.views.compare.changes import compare
from et_sim.views.report.times import exposed_by_group
from et_sim.views.run.selection import Selection, selection
from et_sim.views.sql import Database
from et_sim.views.view import VIEWS

A_FEW = 12
QUERIES = (
    'SELECT rank, node, name, kind, lane, ready_ns, start_ns, end_ns, bytes, "group", sequence, peer, tag '
    "FROM rank_timeline ORDER BY ALL",
    "SELECT * FROM rank_groups ORDER BY ALL",
    "SELECT * EXCLUDE (actor) FROM ranks ORDER BY ALL",
    "SELECT rank, phases.* EXCLUDE (actor) FROM phases JOIN ranks USING (actor) ORDER BY ALL",
    'SELECT "group", kind, count(*), sum(end_ns - start_ns), count(DISTINCT rank) FROM rank_timeline '
    'WHERE "group" IS NOT NULL GROUP BY ALL ORDER BY ALL',
)


def both(case: Case, folder: Path) -> tuple[RunDirectory, RunDirectory] | None:
    """Return the case, folded and unfolded, or None if it is refused or has nothing to fold."""
    runs = []
    for fold in (True, False):
        try:
            result = run(case.workload, **case.machine, fold=fold, detail="phases,links")
        except EtSimError:
            return None
        if fold and len(result.outcome.plan.actors) == case.workload.ranks:
            return None
        write_run(result, folder / str(fold))
        runs.append(open_run(folder / str(fold)))
    return runs[0], runs[1]


def parts(draw: Random, found: RunDirectory) -> list[Selection]:
    """Draw selections: all of a run, some of its ranks, and some of its time."""
    ranks = sorted(draw.sample(range(found.summary["ranks"]), draw.randint(1, 2)))
    end = found.summary["makespan_ns"]
    first = draw.randrange(end + 1)
    window = f"{first}:{draw.randint(first + 1, end + 1)}"
    named = ",".join(map(str, ranks))
    return [selection(), selection(named), selection(None, window), selection(named, window)]


def answers(found: RunDirectory, part: Selection) -> dict[str, Any]:
    """Return every view as data, or its refusal."""
    return {view: _answer(view, found, part) for view in VIEWS if view not in ("summary", "picture")}


def _answer(view: str, found: RunDirectory, part: Selection) -> Any:
    try:
        return json.loads(json.dumps(VIEWS[view].data(found, part)))
    except EtSimError as error:
        return str(error).replace(str(found.path), "RUN")


def rows_of(found: RunDirectory) -> list[Any]:
    """Return the results of the SQL queries."""
    with Database(found) as database:
        return [database.connection.execute(query).fetchall() for query in QUERIES]


def assert_alike(folded: RunDirectory, unfolded: RunDirectory, seed: int) -> None:
    for part in parts(Random(seed), folded):
        assert answers(folded, part) == answers(unfolded, part), (seed, part)
    assert compare(folded, unfolded).is_identical, seed
    assert rows_of(folded) == rows_of(unfolded), seed
    assert exposed_by_group(folded) == exposed_by_group(unfolded), seed


@pytest.fixture
def alike(tmp_path: Path) -> Callable[[range], int]:
    """Check cases by their seeds, and return the number of cases that fold."""

    def check(seeds: range) -> int:
        count = 0
        for seed in seeds:
            result = both(random_case(seed), tmp_path / str(seed))
            if result is not None:
                assert_alike(*result, seed)
                count += 1
        return count

    return check


@pytest.mark.deep
def test_views_of_folded_runs_are_those_of_unfolded_ones(alike: Callable[[range], int]) -> None:
    assert alike(range(A_FEW)) >= A_FEW // 4


@pytest.mark.seeds(deep=25, exhaustive=1000, at_a_time=25)
def test_views_of_many_folded_runs_are_those_of_unfolded_ones(
    seeds: range, alike: Callable[[range], int]
) -> None:
    alike(seeds)
