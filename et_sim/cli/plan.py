"""`et-sim plan`: the needs and costs of a training job, before it is simulated."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from et_sim.basics.declared_options import EITHER, Argument, Option
from et_sim.basics.errors import UsageError, did_you_mean
from et_sim.basics.units import format_bytes, format_ns, memory_text, parse_bytes, plural
from et_sim.cli import jobs
from et_sim.cli.options import Json, parse_share
from et_sim.cli.progress import printing
from et_sim.run.options import RunOptions

if TYPE_CHECKING:
    from et_sim.machine.model import System
    from et_sim.tables.summary import Scope, Throughput
    from et_sim.workloads.training.figures import PlanFigures, Stage

KINDS = (jobs.LLM, *jobs.REPLICATED)
SHOWN = 16  # stages in the table
TOKENS = "tokens"
WEIGHTS = {"samples": "dense weights; without tables, whose size is not known"}
REMEDIES = {
    "weights": "zero 3 or more tensor- or pipeline-parallel ranks",
    "gradients": "zero 2",
    "optimizer": "zero 1",
    "activations": "recomputation, or smaller micro-batches",
    "temporary": "more tensor-parallel ranks, or smaller micro-batches",
}
MEMORY = tuple(REMEDIES)
WORKSPACE = "workspace"


class Options(jobs.JobOptions):
    """Check how a model is spread over ranks, and print the needs of every stage of the pipeline: memory,
    operations, traffic, and bubble. Nothing is simulated.
    """

    kind: Annotated[str, f"{', '.join(KINDS)} (default: {jobs.LLM})", "KIND", Argument()] = jobs.LLM
    capacity: Annotated[
        int | None,
        "memory of a NPU, such as 80GiB: exit 1 if a stage needs more",
        Option(parse=parse_bytes, least=1),
        EITHER,
    ] = None
    machine: Annotated[
        str | None,
        "the same from a preset machine, which also times kernels; with NPUS, as many ranks as the plan has",
        "NAME[:NPUS]",
        EITHER,
    ] = None
    workspace: Annotated[
        float,
        Option(parse=parse_share),
        "memory for workspace and fragmentation to assume, as a share of the counted memory, such as"
        " 5%% (default: 0, listed as left out)",
        "SHARE",
    ] = 0
    json: Json = False


@jobs.naming_options()
def run(options: Options) -> int:
    """Print the figures; return 1 if they do not fit the machine."""
    if options.kind not in KINDS:
        remedy = did_you_mean(options.kind, KINDS) or f"known: {', '.join(KINDS)}"
        raise UsageError(f"there is nothing called {options.kind!r} to plan", remedy=remedy)
    system = _system(options.machine)
    memory = None if system is None else system.local_memory
    capacity = options.capacity if memory is None else memory.capacity_bytes
    reserved = 0 if memory is None else memory.reserved_bytes
    figures, model = _planned(options, system)
    figures = figures.with_workspace(options.workspace)
    _check_machine(options, figures)
    rates = _rates(figures, system)
    lines = as_text(figures, capacity, reserved, rates, options.machine, options.workspace)
    status = 1 if capacity is not None and _largest(figures) > capacity else 0
    with printing(status):
        data = as_data(figures, model, capacity, reserved, rates)
        print(json.dumps(data, indent=2) if options.json else "\n".join(lines))
    return status


def _system(machine: str | None) -> System | None:
    """Return the system of the named machine, if any."""
    if machine is None:
        return None
    from et_sim.machine import read_machine

    return read_machine(**RunOptions(machine=machine).parts).system


def _rates(figures: PlanFigures, system: System | None) -> Throughput | None:
    """Return the rates of a step on a network that takes no time; None without a machine."""
    if system is None:
        return None
    from et_sim.machine.system import peaks_of
    from et_sim.timeline.recorded import throughput

    return throughput(figures.step, peaks_of(system), figures.ranks, figures.ideal_ns, None)


def _check_machine(options: Options, figures: PlanFigures) -> None:
    """Refuse a number of NPUs that differs from the number of ranks."""
    if options.machine is None or ":" not in options.machine:
        return
    from et_sim.machine.presets import preset

    npus = preset(options.machine).npus
    if npus != figures.ranks:
        raise UsageError(
            f"--machine {options.machine} has {plural(npus, 'NPU')}, and the plan ({figures.plan.axes}) makes"
            f" {plural(figures.ranks, 'rank')}",
            remedy="correct one of them, or leave out the number of NPUs",
        )


def _planned(options: Options, system: System | None) -> tuple[PlanFigures, dict[str, Any]]:
    """Return the figures, and the model for programs."""
    from msgspec import to_builtins

    from et_sim.compute import compute_model, kernel_times
    from et_sim.workloads.training.figures import figures, figures_of_replicas

    for name in jobs.given(options, ("tflops", "memory_gbps")) if system is not None else ():
        raise UsageError(
            f"--{name.replace('_', '-')} has no effect with --machine, which times kernels",
            remedy="leave one of them out",
        )
    times = None if system is None else kernel_times(compute_model(system))
    if options.kind == jobs.LLM:
        jobs.refuse_others(options, options.kind)
        plan, model = jobs.read_training(options)
        return figures(model, plan, times)[0], to_builtins(model)
    job = jobs.make_job(options)
    step_figures = figures_of_replicas(
        job.workload, job.plan, job.name, job.layers, job.weights, job.unit, times
    )
    return step_figures, job.model


def _largest(figures: PlanFigures) -> int:
    return max(stage.memory.total for stage in figures.stages)


def as_data(
    figures: PlanFigures,
    model: dict[str, Any],
    capacity: int | None,
    reserved: int,
    rates: Throughput | None,
) -> dict[str, Any]:
    """Return the figures for programs."""
    from msgspec.structs import asdict

    return {
        "model": model,
        "plan": asdict(figures.plan),
        "ranks": figures.ranks,
        "templates": figures.templates,
        "actors": figures.actors,
        "nodes": figures.nodes,
        "weights": figures.weights,
        "active_weights": figures.active_weights,
        figures.unit: figures.amount,
        "operations": figures.operations,
        **({"step": figures.step.as_written()} if figures.step else {}),
        **({"imbalance": figures.imbalance._asdict()} if figures.imbalance else {}),
        "ideal_ns": figures.ideal_ns,
        "throughput_at_most": rates,
        "capacity_bytes": capacity,
        "reserved_bytes": reserved,
        "stages": [
            {
                "stage": stage.place,
                "layers": list(stage.layers),
                "memory_bytes": {**asdict(stage.memory), "total": stage.memory.total},
                "operations": stage.operations,
                "compute_ns": stage.compute_ns,
                "bubble": round(stage.bubble, 6),
                "traffic": [asdict(entry) for entry in stage.traffic],
            }
            for stage in figures.stages
        ],
    }


def as_text(
    figures: PlanFigures,
    capacity: int | None,
    reserved: int,
    rates: Throughput | None,
    machine: str | None,
    workspace: float,
) -> list[str]:
    """Return the figures as lines of text."""
    from et_sim.views.sheet import Sheet, SheetColumn
    from et_sim.views.summary.sentences import scope_text, throughput_text, utilisation_text
    from et_sim.views.text import fact, fact_lines, terminal_width

    plan = figures.plan
    is_sparse = figures.active_weights != figures.weights
    active = f", {figures.active_weights:,} of them active" if is_sparse else ""
    times = f" ({figures.operations / figures.products_of_weights:.3f} x 6 x weights x {figures.unit})"
    counts = (
        plural(figures.ranks, "rank"),
        plural(figures.templates, "template"),
        plural(figures.actors, "actor"),
    )
    timed = f"at {plan.tflops:g} TFLOPS and {plan.memory_gbps:g} GB/s"
    if machine is not None:
        timed = f"as {machine} times kernels"
    reached = {"throughput": throughput_text(rates), "utilisation": utilisation_text(rates)}
    entries = [
        ("in short", _in_short(figures, capacity)),
        ("includes", scope_text(_scope(figures, machine, workspace))),
    ]
    lines = [
        *fact_lines(entries, terminal_width()),
        f"model        {figures.name}: {figures.weights:,} {WEIGHTS.get(figures.unit, 'weights')}{active}",
        f"plan         {plan}: {', '.join(counts)}",
        f"step         {figures.amount:,} {figures.unit}, {figures.operations:.4g} operations"
        + (times if figures.unit == TOKENS else ""),
        f"computation  {format_ns(figures.ideal_ns)}, {timed}, if the network took no time",
        *(fact(name, f"at most {text}") for name, text in reached.items() if text),
        *_experts(figures),
        "",
    ]
    parts = (*MEMORY, *([WORKSPACE] if _has_workspace(figures) else []), "total")
    sheet = Sheet(
        (
            SheetColumn("stage", lambda stage: str(stage.place), "<"),
            SheetColumn("layers", lambda stage: "+".join(map(str, stage.layers)), "<"),
            *(SheetColumn(name, partial(_size, name)) for name in parts),
            SheetColumn("bubble", lambda stage: f"{stage.bubble:.1%}"),
        )
    )
    rows = _shown(figures.stages)
    lines += sheet.lines(rows)
    left = len(figures.stages) - len(rows)
    if left > 0:
        lines.append(f"… {plural(left, 'stage')} between them (--json has all)")
    lines += ["", *_traffic(figures)]
    if capacity is not None:
        lines += ["", _fits(figures, capacity, reserved)]
    return lines


def _in_short(figures: PlanFigures, capacity: int | None) -> str:
    """Return a sentence: whether it fits, the least time of a step, and the largest traffic."""
    worst = max(figures.stages, key=lambda stage: stage.memory.total)
    size = format_bytes(worst.memory.total)
    text = f"ranks need up to {size}"
    if capacity is not None:
        fits = "fits" if worst.memory.total <= capacity else "does not fit"
        text = f"{fits}: ranks need up to {size} of {format_bytes(capacity)}"
    text += f"; a step takes {format_ns(figures.ideal_ns)} at least"
    bubble = max(stage.bubble for stage in figures.stages)
    text += f", with up to {bubble:.1%} of bubble" if bubble else ""
    entries = [entry for stage in figures.stages for entry in stage.traffic]
    if not entries:
        return text
    most = max(entries, key=lambda entry: entry.bytes)
    return f"{text}; most is sent over {most.over or 'all ranks'}, {format_bytes(most.bytes)} by a rank"


def _has_workspace(figures: PlanFigures) -> bool:
    return any(stage.memory.workspace for stage in figures.stages)


def _scope(figures: PlanFigures, machine: str | None, workspace: float) -> Scope:
    """Return the effects that the figures of a plan include and leave out."""
    timed = "at these rates" if machine is None else f"as {machine} times them"
    memory, lacking = f"memory with gradients of {plural(figures.plan.sum_bytes, 'byte')}", []
    if _has_workspace(figures):
        memory += f", and {100 * workspace:g}% of workspace and fragmentation as assumed"
    else:
        lacking.append("workspace and fragmentation, unless --workspace states them")
    return {
        "includes": [f"kernels {timed}", memory, "what ranks put into transfers", "the bubble"],
        "leaves_out": [*lacking, "the time of transfers"],
    }


def _experts(figures: PlanFigures) -> list[str]:
    """Return a line about the imbalance of experts, if there is one."""
    if figures.imbalance is None:
        return []
    busiest, rank = figures.imbalance
    ranks = f", the busiest rank {rank:.2f} times that of ranks" if figures.plan.expert > 1 else ""
    return [f"experts      {figures.plan.expert_skew}: the busiest gets {busiest:.2f} times the mean{ranks}"]


def _shown(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    return stages if len(stages) <= SHOWN else (*stages[: SHOWN // 2], *stages[-SHOWN // 2 :])


def _size(name: str, stage: Stage) -> str:
    return format_bytes(getattr(stage.memory, name))


def _traffic(figures: PlanFigures) -> list[str]:
    """Return lines of the bytes that a rank sends, for the stage with the most."""
    from et_sim.views.sheet import Sheet, SheetColumn

    most: dict[tuple[str, str], tuple[int, int, int]] = {}
    for stage in figures.stages:
        for entry in stage.traffic:
            key = entry.over, entry.kind
            if key not in most or entry.bytes > most[key][0]:
                most[key] = entry.bytes, entry.times, stage.place
    if not most:
        return ["traffic      none"]
    sheet = Sheet(
        (
            SheetColumn("over", lambda entry: entry[0][0] or "-", "<"),
            SheetColumn("what a rank puts in", lambda entry: entry[0][1], "<"),
            SheetColumn("times", lambda entry: f"{entry[1][1]:,}"),
            SheetColumn("bytes", lambda entry: format_bytes(entry[1][0])),
            SheetColumn("most in stage", lambda entry: str(entry[1][2])),
        )
    )
    return sheet.lines(sorted(most.items(), key=lambda entry: -entry[1][0]))


def _fits(figures: PlanFigures, capacity: int, reserved: int) -> str:
    worst = max(figures.stages, key=lambda stage: stage.memory.total)
    total = worst.memory.total
    whole = memory_text(capacity, reserved) if reserved else format_bytes(capacity)
    needed = f"stage {worst.place} needs {format_bytes(total)}"
    if total <= capacity:
        return f"fits         {needed} of {whole}: {total / capacity:.0%}"
    names = dict(REMEDIES)
    if figures.unit != TOKENS:
        names |= {"weights": "another model", "activations": "a smaller --batch"}
    for name, level in (("optimizer", 1), ("gradients", 2), ("weights", 3)):
        if figures.plan.zero >= level:
            names[name] = "more ranks of tensors, stages or replicas"
    largest = max(names, key=lambda name: getattr(worst.memory, name))
    return f"too large    {needed}, more than {whole}; the largest part is {largest}: try {names[largest]}"
