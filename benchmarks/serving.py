"""The cost of serving requests to llama3-8b on eight H100, with lengths that differ.

    python benchmarks/serving.py [REQUESTS]
    python benchmarks/serving.py caching

Prompts have 512 tokens on average and outputs 200, with exponential tails; arrivals are Poisson. With another
number than 1,000, only the default policy serves. `caching` serves them without a prefix cache, with one that
finds nothing, and with prompts of 20 kinds whose first 512 tokens are equal, in turn. Processor seconds, with
machine code that is there already.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from et_sim.run.options import RunOptions
from et_sim.serving.batcher import CHUNKED, PREFILL_FIRST, Policy
from et_sim.serving.caching import Caching
from et_sim.serving.prefixes import ENDLESS
from et_sim.serving.requests import Request
from et_sim.serving.serve import serve
from et_sim.serving.setups import Setup
from et_sim.workloads import Plan, read_model

REQUESTS, RATE = 1000, 40


def requests(count: int = REQUESTS) -> list[Request]:
    """Return requests of random lengths from a fixed seed."""
    chance = np.random.default_rng(1)
    arrivals = np.cumsum(chance.exponential(1e9 / RATE, count)).astype(np.int64).tolist()
    prompts = (16 + chance.exponential(496, count)).astype(np.int64).clip(max=6000).tolist()
    outputs = (1 + chance.exponential(199, count)).astype(np.int64).clip(max=2000).tolist()
    return [Request(number, *one) for number, one in enumerate(zip(arrivals, prompts, outputs, strict=True))]


def alike(given: Sequence[Request], kinds: int = 20) -> list[Request]:
    """Return the requests with equal first tokens of each kind."""
    own = 10**6
    return [
        replace(
            request,
            hashes=(
                request.number % kinds,
                *range(own * (request.number + 1), own * (request.number + 1) + (request.prompt - 1) // 512),
            ),
        )
        for request in given
    ]


def caching() -> None:
    """Print the cost of a prefix cache, as a ratio to a load without one in the same minutes."""
    model, machine, given = read_model("llama3-8b"), RunOptions(machine="h100-dgx:8"), requests()
    serve(given[:1], model, Setup(plan=Plan(tensor=8)), machine)
    before = 0.0
    print("| prefix cache | hit tokens | passes | distinct | seconds | ratio |")
    print("|---" * 6 + "|")
    for name, load, choice in (
        ("none", given, Caching()),
        ("all, no equal tokens", given, Caching(ENDLESS)),
        ("none", given, Caching()),
        ("all, 20 kinds", alike(given), Caching(ENDLESS)),
        ("none", given, Caching()),
        ("20,000 tokens, 20 kinds", alike(given), Caching(20_000)),
    ):
        begin = time.process_time()
        found = serve(load, model, Setup(plan=Plan(tensor=8), caching=choice), machine).summary()
        took = time.process_time() - begin
        before = took if name == "none" else before
        prefixes = found.get("prefixes")
        hits = prefixes["hit_tokens"] if prefixes else 0
        print(
            f"| {name} | {hits:,} | {found['passes']:,} | {found['simulated_passes']:,} | {took:.1f} s"
            f" | {took / before:.2f} |"
        )


def main() -> None:
    """Print one line a row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("requests", nargs="?", default=str(REQUESTS), help="number of requests, or `caching`")
    wanted = parser.parse_args().requests
    if wanted == "caching":
        caching()
        return
    if not wanted.isdecimal():
        parser.error(f"{wanted} is not a number of requests; give one, or caching")
    count = int(wanted)
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
