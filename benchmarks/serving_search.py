"""The cost of a search of plans that serve: 200 plans of llama3-70b on 8 H200, with 200 requests each.

    python benchmarks/serving_search.py [PLANS]

Engines, tensor-parallel ranks, replicas, separate pools and arrivals vary. Processor seconds of one process,
with machine code that is there already; and the number of simulations, of which a plan by itself needs some
twenty.
"""

from __future__ import annotations

import argparse
import time
from itertools import islice, product
from typing import Any

from et_sim.basics.errors import EtSimError
from et_sim.run.options import RunOptions
from et_sim.serving.described import ServingChoices, setup_of
from et_sim.serving.replicas import MachineTimes, SimulatedTimes
from et_sim.serving.serve import serve
from et_sim.workloads import Plan, read_model

MODEL, MACHINE, REQUESTS = "llama3-70b", "h200-dgx:8", 200
TOGETHER = [(tp, {"replicas": count}) for tp in (2, 4, 8) for count in range(1, 8 // tp + 1)]
APART = [
    (tp, {"prefill_replicas": prefill, "decode_replicas": decode})
    for tp in (2, 4)
    for prefill in (1, 2, 3)
    for decode in (1, 2, 3)
    if (prefill + decode) * tp <= 8
]


def plans() -> list[tuple[int, dict[str, Any]]]:
    """Return tensor-parallel ranks and choices of each plan."""
    return [
        (tp, {**pools, "engine": engine, "rate": rate})
        for engine, rate, (tp, pools) in product(
            ("vllm", "sglang", "trtllm"), (2.0, 4.0, 6.0, 8.0, 10.0), TOGETHER + APART
        )
    ]


def main() -> None:
    """Print the cost of all plans together, and of the first ones each by itself."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plans", nargs="?", type=int, default=200, help="number of plans (default: 200)")
    count = parser.parse_args().plans
    model, options = read_model(MODEL), RunOptions(machine=MACHINE)
    load = f"poisson:10,{REQUESTS},1024,256"
    simulations = 0
    outcome = SimulatedTimes._outcome

    def counted(*given: Any, **more: Any) -> Any:
        nonlocal simulations
        simulations += 1
        return outcome(*given, **more)

    SimulatedTimes._outcome = counted  # type: ignore[method-assign]
    serve("poisson:10,2,100,10", model, setup_of(ServingChoices(), Plan(tensor=8), model), options)
    for name, shared, most in (("by themselves", None, 20), ("together", MachineTimes(), count)):
        begin, simulations, done = time.process_time(), 0, 0
        for tp, choices in islice(plans(), most):
            try:
                serve(
                    load,
                    model,
                    setup_of(ServingChoices(**choices), Plan(tensor=tp), model),
                    options,
                    shared=shared,
                )
                done += 1
            except EtSimError as error:
                print(tp, choices, error)
        took = time.process_time() - begin
        each = f"{took / done:.2f} s and {simulations / done:.1f} simulations a plan"
        print(f"{done} plans {name}: {took:.1f} s, {each}")


if __name__ == "__main__":
    main()
