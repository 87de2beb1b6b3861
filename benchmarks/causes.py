"""The cost of recording causes: the event loop without and with that record.

    python benchmarks/causes.py

The inputs are those of `engine.py`. `recorded` drops all causal events, `kept` puts them into a
file, as a run does. Times are CPU time, the best of three.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Any

from engine import SMALL, all_reduce, describe

from et_sim.engine.driver import run_plan
from et_sim.engine.transport.network_seam import NetworkModel
from et_sim.machine import Network, read_machine
from et_sim.network.registry import model_named
from et_sim.plan import build_plan
from et_sim.plan.records import LoweredPlan
from et_sim.timeline import CausalEvents

REPEATS = 3


def seconds(
    plan: LoweredPlan, network: Network, model: NetworkModel, record: Callable[[Any], None] | None
) -> float:
    """Return the CPU time of a run."""
    begin = time.process_time()
    run_plan(plan, network, model, record=record)
    return time.process_time() - begin


def main() -> None:
    """Print one line a row."""
    print(f"{'network':>12} {'model':>10} {'messages':>10} {'causal_events':>11} ", end="")
    print(f"{'plain':>7} {'recorded':>14} {'kept':>14} peak")
    for shape, chunks, name, _ in SMALL[2:]:
        machine, model = read_machine(**describe(shape, chunks)), model_named(name)
        plan = build_plan(all_reduce(machine.network.ranks), machine)
        outcome = run_plan(plan, machine.network, model)  # compile or load before anything is timed
        assert outcome is not None
        kept = CausalEvents()
        run_plan(plan, machine.network, model, record=kept.add)
        causal_events, best = kept.count, [float("inf")] * 3
        for _ in range(REPEATS):
            kept.clear()
            for at, record in enumerate((None, lambda _: None, kept.add)):
                best[at] = min(best[at], seconds(plan, machine.network, model, record))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        ratios = [f"{one:>6.2f} s {one / best[0]:>4.1f}x" for one in best[1:]]
        print(
            f"{'x'.join(map(str, shape)):>12} {name:>10} {outcome.messages:>10,} {causal_events:>11,} "
            f"{best[0]:>5.2f} s {' '.join(ratios)} {peak} MB"
        )


if __name__ == "__main__":
    main()
