"""Random servings and long jobs: a seed determines one, whose files are kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from training_jobs import decoder, with_experts, with_latent_attention

from et_sim.goodput.goodput import goodput
from et_sim.run.options import RunOptions
from et_sim.serving.batcher import POLICIES
from et_sim.serving.described import ServingChoices, setup_of
from et_sim.serving.serve import serve
from et_sim.workloads import Plan

LOADS = (
    "poisson:{rate},6,150,4",
    "constant:{rate},6,150,4",
    "gamma:{rate},2,6,150,4",
    "sessions:{rate},2,3,100,3,0.0001",
    "closed:100,4,5",
    "rollout:100,4,6,2",
)
HOST = {"memory-type": "PER_NPU_MEMORY_EXPANSION", "remote-mem-latency": 2000, "remote-mem-bw": 5}


def serving(seed: int, folder: Path) -> str:
    """Serve a few requests with a tiny model, write the results, and return their time."""
    draw = Random(seed)
    make = draw.choice((decoder, decoder, with_experts, with_latent_attention))
    model = make(sequence=4096, next_tokens=1)
    load = draw.choice(LOADS)
    choices = _engine(draw) | _load(draw, load) | _fleet(draw, load)
    plan = draw.choice((Plan(tensor=2), Plan(pipeline=2), Plan()))
    if make is with_experts:
        plan = draw.choice((Plan(data=2, expert=2), Plan(tensor=2, sequence_parallel=True)))
    options = RunOptions(machine="h100-dgx:8", memory=HOST if "offload" in choices else None)
    given = load.format(rate=draw.choice((1000, 20_000)))
    result = serve(given, model, setup_of(ServingChoices(**choices), plan, model), options)
    result.write(folder)
    return f"{result.summary()['duration_ns']} ns"


def _load(draw: Random, load: str) -> dict[str, Any]:
    found: dict[str, Any] = {"seed": draw.randrange(9)}
    if not load.startswith("sessions"):
        found["lengths"] = draw.choice((1.0, 0.5))
    if load.startswith("closed"):
        found |= {"concurrency": draw.choice((1, 2, 3)), "spread": draw.random() < 0.3}
    if load.startswith("rollout"):
        found["send_weights"] = draw.random() < 0.5
    return found | draw.choice(({}, {"ttft": 50_000, "tpot": 20_000}))


def _engine(draw: Random) -> dict[str, Any]:
    """Draw a policy, limits of its batches, and a cache."""
    found: dict[str, Any] = {"engine": draw.choice(("none", "vllm", "sglang", "trtllm"))}
    if found["engine"] == "none":
        del found["engine"]
    found["policy"] = draw.choice(sorted(POLICIES))
    found["max_batch"] = draw.choice((1, 2, 4))
    found["token_budget"] = draw.choice((64, 256, 2048))
    if draw.random() < 0.5:
        found["cache_tokens"] = draw.choice((320, 1024))
    if draw.random() < 0.4:
        found["prefix_cache"] = draw.choice(("0", "1"))
        found |= draw.choice(({}, {"offload": "500"}))
    if draw.random() < 0.3:
        found |= {
            "speculate": draw.choice(("ngram:2", "ngram:3", "mtp:1")),
            "acceptance": draw.choice((1.2, 1.8)),
        }
    return found


def _fleet(draw: Random, load: str) -> dict[str, Any]:
    """Draw replicas: of equal work, in two pools, or as many as the load requires."""
    kind = draw.choice(("one", "two", "apart", "scaled"))
    if kind == "apart":
        return {"prefill_replicas": 1, "decode_replicas": 2, "transfer": draw.choice(("whole", "layers"))}
    if kind == "scaled" and not load.startswith("rollout"):
        return {
            "autoscale": draw.choice(("queue:1", "requests:2", "busy:0.5")),
            "most_replicas": 3,
            "start_time": 100_000,
            "scale_every": draw.choice((10_000, 1_000_000)),
            "scale_down_after": draw.choice((0, 200_000)),
        }
    return {"replicas": 1 if kind == "one" else 2}


def job(seed: int, folder: Path) -> str:
    """Draw months of a long job, write the results, and return its tokens."""
    draw = Random(seed)
    checkpoints: dict[str, Any] = {"bytes": draw.choice(("1TB", "10TB"))}
    checkpoints |= draw.choice(({}, {"interval": "30min"}, {"interval": "2h", "how": "asynchronous"}))
    checkpoints |= draw.choice(({}, {"stall": "20s"}, {"storage": "500GB/s"}))
    if draw.random() < 0.4:
        checkpoints["memory"] = {
            "interval": "10min",
            "stall": "1s",
            "load": "5s",
            "copies": draw.choice((1, 2)),
        }
    parts = [
        {"name": "gpu", "per-1000-node-days": draw.choice((1, 4)), "repair": draw.choice(("1h", "3d"))},
        {"name": "fan", "per-1000-node-days": 5, "nodes": 1, "repair": "4h", "effect": draw.choice(EFFECTS)},
        {"name": "rack", "per-1000-node-days": 1, "nodes": 4, "repair": "1d", "detection": "1min"},
    ]
    failures: dict[str, Any] = {"parts": draw.sample(parts, draw.randint(1, 3))}
    failures |= draw.choice(({}, {"preset": "rsc-1"}, {"preset": "llama3-2024"}))
    failures |= draw.choice(({}, {"early": {"factor": 3, "decay": "5d"}}))
    described = {
        "step": draw.choice(("5s", "31s")),
        "tokens-of-step": 4_000_000,
        "gpus": draw.choice((64, 2048)),
        "failures": failures,
        "spares": draw.choice(({"hot": 4}, {"cold": 2}, {"hot": 1, "cold": 1})),
        "checkpoints": checkpoints,
        **draw.choice(({}, {"elastic": 1}, {"tokens": 1e10}, {"price-per-gpu-hour": 2.5})),
        **draw.choice(({}, {"maintenance": {"every": "7d", "for": "2h"}})),
    }
    Path("job.yml").write_text(json.dumps(described), encoding="utf-8")
    result = goodput(Path("job.yml"), days=draw.choice((3.0, 20.0)), runs=6, seed=seed, known={})
    result.write(folder)
    return "drawn"


EFFECTS = ("stops", "slows", "halves-link", "corrupts")
SERVICES: dict[str, Callable[[int, Path], str]] = {"servings": serving, "months": job}
