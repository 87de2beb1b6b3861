"""Entries that name operations or a cause: which nodes they vary, and which of them draw alike."""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.machine.variation import Family, Variation, VariationLevel, VariedKind
from et_sim.plan.records import Action
from et_sim.samples.draws import draws_of
from et_sim.samples.work import varied_nodes
from et_sim.trace import TraceBuilder


def entry(**values: Any) -> Variation:
    kind = {"kind": VariedKind.KERNEL, "level": VariationLevel.EVENT, "family": Family.LOG_NORMAL}
    return Variation(**{**kind, "spread": 0.1, **values})


def test_events_of_each_named_operation_are_counted_by_themselves() -> None:
    build = TraceBuilder()
    for name in ("forward", "forward", "other", "backward", "forward", "backward"):
        build.compute(name, micros=1)
    trace = build.build()
    nodes = {"action": np.full(len(trace), Action.DELAY)}
    found = varied_nodes(entry(operations=("forward", "backward")), trace, nodes)
    assert found.rows.tolist() == [0, 1, 3, 4, 5]
    assert found.numbers.tolist() == [0, 1, 0, 2, 1]
    assert found.events == 3
    every = varied_nodes(entry(), trace, nodes)
    assert every.numbers.tolist() == [0, 1, 2, 3, 4, 5]
    assert every.events == 6


def test_entries_of_one_cause_draw_alike_and_others_by_themselves() -> None:
    """Check that log-normal factors of another spread are powers of the first ones, up to their mean."""
    entries = (entry(cause="length"), entry(cause="length", spread=0.3), entry(), entry(cause="heat"))
    first, second, own, other = (
        np.log(draw.factors(np.arange(4), 2, 500)).ravel() for draw in draws_of(entries, 5)
    )
    assert np.corrcoef(first, second)[0, 1] > 0.999999
    assert abs(np.corrcoef(first, own)[0, 1]) < 0.1
    assert abs(np.corrcoef(first, other)[0, 1]) < 0.1
