"""`et-sim plan`: what a training job needs and costs, before it is simulated."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from et_sim.cli import training
from et_sim.errors import UsageError

if TYPE_CHECKING:
    from et_sim.workloads.training.figures import Figures, Stage

SHOWN = 16  # stages in the table
MEMORY = ("weights", "gradients", "optimizer", "activations", "temporary")


def add_parser(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "plan",
        help="what a training job needs: memory, operations, traffic, bubble",
        description="Check how a model is spread over ranks, and print what every stage of the pipeline"
        " needs: memory, operations, traffic, and how long it has nothing to compute. Nothing is simulated.",
    )
    parser.add_argument("--capacity", help="memory of a NPU, such as 80GiB: exit 1 if a stage needs more")
    parser.add_argument("--json", action="store_true", help="print data instead of text")
    training.add_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the figures; 1 if they do not fit the machine."""
    from et_sim.units import parse_bytes
    from et_sim.workloads.training.figures import figures

    capacity = parse_bytes(options.capacity) if options.capacity is not None else None
    if capacity is not None and capacity < 1:
        raise UsageError(f"--capacity is {options.capacity}", remedy="give a size such as 80GiB")
    found, _ = figures(*training.read_options(options))
    lines = as_text(found, capacity)
    print(json.dumps(as_data(found, capacity), indent=2) if options.json else "\n".join(lines))
    return 1 if capacity is not None and _largest(found) > capacity else 0


def _largest(found: Figures) -> int:
    return max(stage.memory.total for stage in found.stages)


def as_data(found: Figures, capacity: int | None) -> dict[str, Any]:
    """The figures for programs."""
    from dataclasses import asdict

    return {
        "model": asdict(found.model),
        "plan": asdict(found.plan),
        "ranks": found.ranks,
        "templates": found.templates,
        "nodes": found.nodes,
        "weights": found.model.weights,
        "active_weights": found.model.active_weights,
        "tokens": found.tokens,
        "operations": found.operations,
        "model_operations": found.model_operations,
        "ideal_ns": found.ideal_ns,
        "capacity_bytes": capacity,
        "stages": [
            {
                "stage": stage.place,
                "layers": list(stage.layers),
                "memory_bytes": {**asdict(stage.memory), "total": stage.memory.total},
                "operations": stage.operations,
                "compute_ns": stage.compute_ns,
                "bubble": round(stage.bubble, 6),
                "traffic": [entry._asdict() for entry in stage.traffic],
            }
            for stage in found.stages
        ],
    }


def as_text(found: Figures, capacity: int | None) -> list[str]:
    """The figures for people."""
    from et_sim.units import format_ns, plural
    from et_sim.views.text import aligned

    model, plan = found.model, found.plan
    active = f", {model.active_weights:,} of them active" if model.experts else ""
    lines = [
        f"model        {model.name}: {model.weights:,} weights{active}",
        f"plan         {plan}: {plural(found.ranks, 'rank')}, {plural(found.templates, 'template')}",
        f"step         {found.tokens:,} tokens, {found.operations:.4g} operations"
        f" ({found.operations / found.model_operations:.3f} x 6 x weights x tokens)",
        f"computation  {format_ns(found.ideal_ns)}, at {plan.tflops:g} TFLOPS and {plan.memory_gbps:g} GB/s,"
        " if the network took no time",
        "",
    ]
    head = ("stage", "layers", *MEMORY, "total", "bubble")
    rows = [_row(stage) for stage in _shown(found.stages)]
    lines += aligned([head, *rows], "<<" + ">" * 7)
    left = len(found.stages) - len(rows)
    if left > 0:
        lines.append(f"… {plural(left, 'stage')} between them (--json has all)")
    lines += ["", *_traffic(found)]
    if capacity is not None:
        lines += ["", _fits(found, capacity)]
    return lines


def _shown(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    return stages if len(stages) <= SHOWN else (*stages[: SHOWN // 2], *stages[-SHOWN // 2 :])


def _row(stage: Stage) -> tuple[str, ...]:
    from et_sim.units import format_bytes

    sizes = [format_bytes(getattr(stage.memory, name)) for name in (*MEMORY, "total")]
    return str(stage.place), "+".join(map(str, stage.layers)), *sizes, f"{stage.bubble:.1%}"


def _traffic(found: Figures) -> list[str]:
    """What a rank puts in, of the stage where that is most."""
    from et_sim.units import format_bytes
    from et_sim.views.text import aligned

    most: dict[tuple[str, str], tuple[int, int, int]] = {}
    for stage in found.stages:
        for entry in stage.traffic:
            key = entry.over, entry.kind
            if key not in most or entry.bytes > most[key][0]:
                most[key] = entry.bytes, entry.times, stage.place
    if not most:
        return ["traffic      none"]
    rows = [
        (over or "-", kind, f"{times:,}", format_bytes(size), str(place))
        for (over, kind), (size, times, place) in sorted(most.items(), key=lambda item: -item[1][0])
    ]
    head = ("over", "what a rank puts in", "times", "bytes", "most in stage")
    return aligned([head, *rows], "<<>>>")


def _fits(found: Figures, capacity: int) -> str:
    from et_sim.units import format_bytes

    worst = max(found.stages, key=lambda stage: stage.memory.total)
    total, whole = worst.memory.total, format_bytes(capacity)
    text = f"stage {worst.place} needs {format_bytes(total)} of {whole}"
    if total <= capacity:
        return f"fits         {text}: {total / capacity:.0%}"
    names = {"weights": "zero 3 or more tensor- or pipeline-parallel ranks", "gradients": "zero 2"}
    names |= {"optimizer": "zero 1", "activations": "recomputation, or smaller micro-batches"}
    names |= {"temporary": "more tensor-parallel ranks, or smaller micro-batches"}
    largest = max(names, key=lambda name: getattr(worst.memory, name))
    return f"too large    {text}; most of it is {largest}: try {names[largest]}"
