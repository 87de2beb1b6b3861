"""Causes have numbers of their own, and their tables have room for all that is open at a time."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from machines import ring, simulate, system

from et_sim.engine.containers import spare
from et_sim.engine.observe import causes
from et_sim.engine.state.cause_tables import MOST_RECEIVES, STEP_KEYS_OF_A_TREE, CauseKind, Causes
from et_sim.engine.state.run import NONE, RUNNING_LIMIT
from et_sim.machine.presets import preset
from et_sim.trace import TraceBuilder


def test_no_two_kinds_of_causes_have_the_same_number() -> None:
    assert len(CauseKind) == len(CauseKind.__members__)


@pytest.mark.parametrize(("reserve", "rows"), [(1, 64), (1 << 12, 1 << 17), (1 << 17, 1 << 18)])
def test_a_pool_gets_rows_for_many_events_but_no_more_than_a_limit(reserve: int, rows: int) -> None:
    assert spare(reserve) == rows


def places_of_receives(algorithm: str, members: int, *, uneven: bool) -> int:
    """Return the causes of receives that a chunk of an all-to-all keeps."""
    builders = [TraceBuilder() for _ in range(members)]
    for rank, build in enumerate(builders):
        sizes = [64 * (1 + (rank + place) % 3) for place in range(members)]
        build.collective("all_to_all", None if uneven else 4096, splits=sizes if uneven else None)
    result = simulate(builders, ring(members), system(algorithm), detail="path")
    return int(result.outcome.run.causes.posted.shape[1])


def test_a_chunk_keeps_causes_of_all_receives_that_may_be_open() -> None:
    assert places_of_receives("direct", 8, uneven=False) == 7  # all messages start at once
    assert places_of_receives("ring", 8, uneven=True) == 28  # any of 1 + 2 + … + 7 may be early
    assert places_of_receives("ring", 13, uneven=True) == MOST_RECEIVES < 78
    assert places_of_receives("ring", 8, uneven=False) == STEP_KEYS_OF_A_TREE


def test_a_chunk_starts_after_the_one_that_left_its_place_in_the_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Let three chunks run at a time; the next one that waits follows each that leaves."""
    found = list[int]()
    for name in ("works_for", "_comes"):
        monkeypatch.setattr(causes, name, lambda *_: None)
    monkeypatch.setattr(causes, "current_cause", lambda run: run.now)
    monkeypatch.setattr(causes, "join_cause", lambda _run, cause, *_: found.append(cause))
    tables = SimpleNamespace(
        on=np.array([1]),
        queues=[SimpleNamespace(starts=0, leaves=0)],
        queue_slots=np.full((1, 3), NONE),
        chunks=[SimpleNamespace(queued=NONE)],
    )
    settings = np.full(RUNNING_LIMIT + 1, 3)
    run: Any = SimpleNamespace(
        recording=(1,),
        causes=tables,
        visits=[SimpleNamespace(queue=0)],
        plan=SimpleNamespace(settings=settings),
        now=0,
    )
    for _ in range(3):
        causes.chunk_starts(run, 0)
    assert found == []
    for run.now in (100, 101):
        causes.chunk_leaves(run, 0)
    for run.now in range(102, 110):
        causes.chunk_starts(run, 0)
        causes.chunk_leaves(run, 0)
    assert found == list(range(100, 108))


def receives_with_a_place(kind: str, size: int, folder: Path) -> bool:
    """Return whether receives of a library's collective keep their chunk, as if their order mattered."""
    machine, build = preset("h100-dgx:16"), TraceBuilder()
    build.collective(kind, size)
    simulate([build] * 16, machine.network, machine.system, detail="path").save(folder)
    events = pa.ipc.open_file(folder / "path.arrow").read_all()
    places = events.filter(pc.equal(events["kind"], "receive"))["resource"]
    return bool(places.null_count < len(places))


def test_the_order_of_messages_matters_only_where_the_pauses_of_a_library_differ(tmp_path: Path) -> None:
    assert not receives_with_a_place("all_reduce", 1 << 20, tmp_path / "even")
    assert not receives_with_a_place("broadcast", 8, tmp_path / "rooted")
    assert receives_with_a_place("all_to_all", 1 << 20, tmp_path / "uneven")


def test_a_run_that_records_no_causes_has_no_rows_for_them() -> None:
    build = TraceBuilder()
    build.collective("all_reduce", 4096)
    tables = simulate([build] * 4, ring(4), system("ring")).outcome.run.causes
    assert {name for name in Causes.__struct_fields__ if len(getattr(tables, name))} == {
        "on",
        "now",
        "reserve",
    }
