"""The effect of an engine's order of prompts and tokens, with equal kernels and no host.

    python benchmarks/serving_policies.py

Qwen3-32B in fp8 on H200, a closed loop of 128 requests of 1,024 tokens in and out, 1,280 in all. Mean times
to the first token and per token, prompts first by mixed passes; reported: ai-dynamo/aisimulate, pull
request 120.
"""

from __future__ import annotations

from msgspec.structs import replace

from et_sim.run.options import RunOptions
from et_sim.serving.batcher import CHUNKED, PREFILL_FIRST_CHUNKED, Policy
from et_sim.serving.clients import Client
from et_sim.serving.engines.description import EngineHost
from et_sim.serving.engines.reading import read_engine
from et_sim.serving.serve import serve
from et_sim.serving.setups import Setup
from et_sim.workloads import Plan, read_model

CACHE_TOKENS = 371_587  # of TP 1
REPORTED = {1: ("4.67", "0.90"), 2: ("4.65", "0.91"), 4: ("4.63", "-")}


def latencies(ranks: int, policy: str) -> tuple[float, float]:
    """Return the mean times to the first token and per token."""
    engine = replace(
        read_engine("sglang"), host=EngineHost(), prompt_factor=1.0, token_factor=1.0, exchanges=""
    )
    setup = Setup(
        plan=Plan(tensor=ranks, products="fp8"),
        policy=Policy(policy, 512, 8192, 1),
        engine=engine,
        client=Client(128, warm_up=0),
        cache_tokens=CACHE_TOKENS * ranks,
    )
    options = RunOptions(machine=f"h200-dgx:{ranks}")
    found = serve("closed:1024,1024", read_model("qwen3-32b"), setup, options).summary()
    assert found["tpot_ns"] is not None
    return found["ttft_ns"]["mean"], found["tpot_ns"]["mean"]


def main() -> None:
    """Print one line for each number of ranks."""
    print("| TP | TTFT | reported | TPOT | reported |")
    print("|---" * 5 + "|")
    for ranks, (first, each) in REPORTED.items():
        mixed, apart = latencies(ranks, CHUNKED), latencies(ranks, PREFILL_FIRST_CHUNKED)
        print(f"| {ranks} | {apart[0] / mixed[0]:.2f} | {first} | {apart[1] / mixed[1]:.2f} | {each} |")


if __name__ == "__main__":
    main()
