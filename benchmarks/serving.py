"""The cost of serving requests to llama3-8b on eight H100, with lengths that differ.

    python benchmarks/serving.py [REQUESTS]

Prompts have 512 tokens on average and outputs 200, with exponential tails; arrivals are Poisson. With another
number than 1,000, only the default policy serves. Processor seconds, with machine code that is there already.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from et_sim.run.options import RunOptions
from et_sim.serving.batcher import CHUNKED, PREFILL_FIRST, Policy
from et_sim.serving.requests import Request
from et_sim.serving.serve import Setup, serve
from et_sim.workloads import Plan, read_model

REQUESTS, RATE = 1000, 40


def requests(count: int = REQUESTS) -> list[Request]:
    """Return requests of random lengths from a fixed seed."""
    chance = np.random.default_rng(1)
    arrivals = np.cumsum(chance.exponential(1e9 / RATE, count)).astype(np.int64).tolist()
    prompts = (16 + chance.exponential(496, count)).astype(np.int64).clip(max=6000).tolist()
    outputs = (1 + chance.exponential(199, count)).astype(np.int64).clip(max=2000).tolist()
    return [Request(number, *one) for number, one in enumerate(zip(arrivals, prompts, outputs, strict=True))]


def main() -> None:
    """Print one line a row."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else REQUESTS
    model, machine, given = read_model("llama3-8b"), RunOptions(machine="h100-dgx:8"), requests(count)
    print("| policy | context step | passes | distinct | seconds | each | TPOT p50 |")
    print("|---" * 7 + "|")
    serve(given[:1], model, Setup(plan=Plan(tensor=8)), machine)  # compile before anything is timed
    is_usual = count == REQUESTS
    for policy in (CHUNKED, PREFILL_FIRST) if is_usual else (CHUNKED,):
        for step in (256, 64, 16) if is_usual else (64,):
            begin = time.process_time()
            setup = Setup(plan=Plan(tensor=8), policy=Policy(policy), context_step=step)
            found = serve(given, model, setup, machine).summary()
            each = found["tpot_ns"]
            assert each is not None
            took, simulated = time.process_time() - begin, found["simulated_passes"]
            print(
                f"| {policy} | {step} | {found['passes']:,} | {simulated:,} | {took:.1f} s"
                f" | {took / simulated * 1e3:.1f} ms | {each['p50'] / 1e6:.4f} ms |"
            )


if __name__ == "__main__":
    main()
