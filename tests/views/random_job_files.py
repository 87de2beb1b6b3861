"""Random files of long jobs, as command lines."""

from __future__ import annotations

from random import Random
from typing import Any

from random_commands import FILES, Line

RECOVERY = ("detection", "drain", "schedule", "cold-spare", "start", "load", "warm-up")
SPANS = ("90s", "10min", "2h", 40, "1d")
PARTS: tuple[dict[str, Any], ...] = (
    {"name": "gpu", "per-1000-node-days": 5},
    {"name": "gpu", "effect": "corrupts", "per-1000-node-days": 4, "detection": "5h"},
    {"name": "nic", "per-1000-node-days": 9, "link": True, "repair": "1d"},
    {"name": "nic", "per-1000-node-days": 9, "effect": "halves-link", "detection": "1h"},
    {"name": "power", "per-1000-node-days": 1, "nodes": 8, "repair": "2d"},
    {"name": "software", "per-1000-node-days": 9, "nodes": 0},
    {"name": "slow", "per-1000-node-days": 9, "effect": "slows", "detection": "3h", "nodes": 1},
    {"name": "rare", "per-1000-node-days": 0},
)
WRONG_KEYS: tuple[dict[str, Any], ...] = (
    {"step": 0},
    {"spares": {"hot": -1}},
    {"failures": {"preset": "rsc-9"}},
    {"run": "r0"},
    {"checkpoints": {"interval": "1 fortnight"}},
    {"machine": "h100-dgx"},
    {"failures": {"parts": [{"name": "new"}]}},
    {"elastic": 1000},
    {"when-full": "stop"},
    {"recovry": {}},
)


def _some(draw: Random, given: dict[str, Any], share: float = 0.4) -> dict[str, Any]:
    """Return some of the keys."""
    return {name: value for name, value in given.items() if draw.random() < share}


def _step(draw: Random) -> dict[str, Any]:
    """Return a step of given length, or a recipe."""
    step: dict[str, Any] = {"step": draw.choice(("5s", "800ms", 31)), "tokens-of-step": 4_000_000}
    step |= {"gpus": draw.choice((8, 64, 1024))}
    if draw.random() < 0.35:
        plan = draw.choice(({"dp": 4}, {"dp": 2, "tp": 2}, {"pp": 2, "dp": 2}, {"dp": 4, "zero": 3}))
        recipe = {"make": "llm", "model": "gpt2", "layers": 2, "sequence": 32, "plan": plan}
        step = {"workload": recipe, "machine": draw.choice(("h100-dgx:4", "h100-dgx:4,node=2"))}
    return step


def _checkpoints(draw: Random) -> dict[str, Any]:
    memory = {
        "interval": "3min",
        **_some(draw, {"stall": "2s", "load": "20s", "copies": draw.choice((1, 2, 3))}),
    }
    return _some(
        draw,
        {
            "interval": draw.choice(SPANS),
            "how": draw.choice(("asynchronous", "synchronous")),
            "bytes": draw.choice(("1TB", "20TB")),
            "storage": draw.choice(("100GB/s", "4TB/s")),
            "stall": draw.choice(SPANS),
            "memory": memory,
        },
        0.5,
    )


def _failures(draw: Random, is_large: bool) -> dict[str, Any]:
    failures = _some(draw, {"preset": draw.choice(("rsc-1", "llama3-2024")), "slower": 2.5}, 0.5)
    failures |= _some(
        draw, {"early": {"factor": draw.choice((1, 4)), "decay": draw.choice(("3d", 9000))}}, 0.3
    )
    parts = draw.sample(PARTS, draw.randint(0, 4))
    if draw.random() < 0.93:  # names only once, and no rack that is larger than the job
        parts = [*{part["name"]: part for part in parts if part["name"] != "power" or is_large}.values()]
    return failures | {"parts": parts}


def spans(draw: Random) -> Line:
    """Return months of a long job, whose file has any of its keys, and how they are shown."""
    step = _step(draw)
    is_large = step.get("gpus", 0) >= 64
    checkpoints = _checkpoints(draw)
    if "step" in step:
        checkpoints.setdefault("bytes", "2TB")
    failures = _failures(draw, is_large)
    described = {
        **step,
        "failures": failures,
        "checkpoints": checkpoints,
        **_some(draw, {"gpus-of-node": draw.choice((4, 8)), "tokens": 1e11, "price-per-gpu-hour": 2}, 0.3),
        **_some(
            draw,
            {
                "recovery": _some(draw, {name: draw.choice(SPANS) for name in RECOVERY}, 0.4),
                "spares": _some(draw, {"hot": draw.choice((1, 8)), "cold": draw.choice((1, 3))}, 0.6),
                "elastic": draw.choice((1, 3)) if is_large or draw.random() < 0.1 else 0,
                "maintenance": {"every": draw.choice(("5d", "20h")), **_some(draw, {"for": "3h"})},
            },
        ),
    }
    if draw.random() < 0.12:
        described |= draw.choice(WRONG_KEYS)
    days, seed = draw.choice(("3", "12", "0.2")), draw.randrange(4)
    return Line(
        f"goodput job.yml --runs {draw.choice((1, 4, 9))} --days {days} --seed {seed} --out run/g",
        draw.choice((0, 0, 1)),
        after=("inspect run/g --svg run/m.svg", "inspect run/g --json")[: draw.choice((0, 1, 2))],
        files=FILES | {"job.yml": described},
    )
