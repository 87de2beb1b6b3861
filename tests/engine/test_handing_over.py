"""A run that switches from interpreted to compiled code or back, at any of its returns, is unchanged."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest
from machines import network, system

from et_sim.api import run
from et_sim.compiled.entry_points import CompiledEntry
from et_sim.engine import driver
from et_sim.engine.entry import simulate
from et_sim.trace import TraceBuilder, Workload

RANKS = 5
EVENTS_AT_ONCE = 7


def uneven_work() -> Workload:
    """Return computations of different lengths, collectives, and messages round the ranks."""
    traces = []
    for rank in range(RANKS):
        build = TraceBuilder()
        last = [build.compute("work", micros=3 + rank)]
        last = [build.collective("all_reduce", 40_000, after=last)]
        build.collective("all_to_all", 9_000, after=last)
        build.send((rank + 1) % RANKS, 5_000, after=last)
        build.receive((rank - 1) % RANKS, 5_000)
        traces.append(build.build())
    return Workload.of(traces)


def columns(model: str) -> dict[str, Any]:
    """Return all results of a run."""
    outcome = run(
        uneven_work(),
        system=system("ring"),
        network=network(["Ring"], [RANKS]),
        model=model,
        profile="corrected",
        fold=False,
    ).outcome
    assert outcome is not None
    nodes = {name: outcome.nodes[name].tolist() for name in outcome.nodes.dtype.names}
    return {**nodes, "finish": outcome.finish_ns.tolist(), "messages": outcome.messages}


@pytest.mark.parametrize("model", ["analytical", pytest.param("flow", marks=pytest.mark.deep)])
def test_a_run_that_switches_at_any_return_is_the_same(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run_entry = CompiledEntry._run
    calls: list[bool] = []  # compiled, or not
    random, likely = Random(), 0.0

    def by_chance(self: Any, whole: Any, *arguments: Any) -> Any:
        if self is not simulate:
            return run_entry(self, whole, *arguments)
        calls.append(random.random() < likely)
        if not calls[-1]:
            return self._interpret(arguments)
        native = self._found(arguments) or self._made(arguments, math.inf, waits=math.inf)
        return native(*arguments)

    monkeypatch.setattr(driver, "FEWEST_EVENTS", EVENTS_AT_ONCE)
    monkeypatch.setattr(driver, "MOST_EVENTS", EVENTS_AT_ONCE)
    monkeypatch.setattr(CompiledEntry, "_run", by_chance)
    interpreted = columns(model)
    returns = len(calls)
    assert returns > 20
    for seed, likely in enumerate((1.0, 0.1, 0.5, 0.9)):
        random.seed(seed)
        calls.clear()
        assert columns(model) == interpreted
        assert len(calls) == returns
        assert calls.count(True) == returns if likely == 1 else 1 < calls.count(True) < returns - 1
