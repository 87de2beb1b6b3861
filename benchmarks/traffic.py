"""The cost of recording messages and links: the event loop without either, and with one or both.

    python benchmarks/traffic.py

The inputs are those of `engine.py`. Messages go into a file, as in a run. Times are CPU time,
the best of a few.
"""

from __future__ import annotations

import resource
import time

from engine import SMALL, all_reduce, describe

from et_sim.engine.driver import run_plan
from et_sim.engine.transport.network_seam import NetworkModel
from et_sim.machine import Network, read_machine
from et_sim.network.registry import model_named
from et_sim.plan import build_plan
from et_sim.plan.records import LoweredPlan
from et_sim.timeline import MessageSpool

REPEATS = 3
WAYS = ((False, False), (False, True), (True, False), (True, True))  # messages, links


def seconds(plan: LoweredPlan, network: Network, model: NetworkModel, messages: bool, links: bool) -> float:
    """Return the CPU time of a run."""
    kept = MessageSpool() if messages else None
    if kept is not None:
        kept.begin(plan.actor_of_rank)
    begin = time.process_time()
    run_plan(plan, network, model, messages=kept.add if kept else None, links=links)
    return time.process_time() - begin


def main() -> None:
    """Print one line a row."""
    print(f"{'network':>12} {'model':>10} {'messages':>10} {'plain':>7} ", end="")
    print(f"{'links':>14} {'messages':>14} {'both':>14} peak")
    for shape, chunks, name, _ in SMALL[2:]:
        machine, model = read_machine(**describe(shape, chunks)), model_named(name)
        plan = build_plan(all_reduce(machine.network.ranks), machine)
        outcome = run_plan(plan, machine.network, model)  # compile or load before anything is timed
        assert outcome is not None
        best = [float("inf")] * len(WAYS)
        for _ in range(REPEATS):
            for at, way in enumerate(WAYS):
                best[at] = min(best[at], seconds(plan, machine.network, model, *way))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        ratios = [f"{one:>6.2f} s {one / best[0]:>4.2f}x" for one in best[1:]]
        print(
            f"{'x'.join(map(str, shape)):>12} {name:>10} {outcome.messages:>10,} "
            f"{best[0]:>5.2f} s {' '.join(ratios)} {peak} MB"
        )


if __name__ == "__main__":
    main()
