"""Many collectives under way at once: each message finds its chunk at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from machines import network, simulate, system

from et_sim.engine.collectives.matching import chunk_home
from et_sim.engine.pools import empty_index
from et_sim.trace import TraceBuilder

KINDS = ("all_reduce", "all_to_all")


def outstanding(count: int, kind: str) -> TraceBuilder:
    build = TraceBuilder()
    for _ in range(count):
        build.collective(kind, 4096, concurrent=True)
    return build


@pytest.mark.parametrize("kind", KINDS)
def test_all_that_are_under_way_at_once_come_to_their_end(kind: str) -> None:
    """In more rows than the first pools have: their index is made anew while they run."""
    splits: dict[str, Any] = {"preferred-dataset-splits": 3, "active-chunks-per-dimension": 3}
    result = simulate([outstanding(40, kind)] * 3, network(["Ring"], [3]), system(**splits), fold=False)
    assert (result.finish_ns == result.finish_ns[0]).all()
    assert result.finish_ns[0] > 0


@pytest.mark.parametrize(("members", "chunks"), [(1, 4096), (16, 2000), (32, 800), (1000, 7), (4096, 1)])
def test_few_chunks_share_a_place_in_the_index(members: int, chunks: int) -> None:
    run = SimpleNamespace(chunk_index=empty_index(members * chunks))
    homes = chunk_home(run, np.arange(members)[:, None], np.arange(5, 5 + chunks)[None, :])  # type: ignore[arg-type]
    lengths = np.unique(homes, return_counts=True)[1]
    assert lengths.max() <= 8
    assert (lengths * lengths).sum() <= 3 * members * chunks
