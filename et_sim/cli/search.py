"""`et-sim search`: find the best points of a sweep, or the best plan of a model, without trying all."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from et_sim.basics.declared_options import Argument, Option, OptionGroup
from et_sim.basics.errors import UsageError
from et_sim.cli.options import parse_share
from et_sim.cli.sweep import KEPT, EvaluationOptions, Further, evaluate

if TYPE_CHECKING:
    from et_sim.sweeps.plan_space import PlanSearch

PLANS = OptionGroup("all plans of a language model, in place of SPEC")
OF_PLANS = ("machine", "objective", "global_batch", "sequence", "software", "within", "budget")
MACHINE = (
    "a preset machine, such as h100-dgx:2048; if several are named, as in h100-dgx:64,b200-dgx, plans of the"
    " first one are searched, and the best is simulated on each"
)
WITHIN = (
    "end when bounds show that no other plan is better by more than this share (default: 10%%; 0: the best of"
    " all)"
)


class Options(EvaluationOptions):
    """Find the points of a sweep with the least time, memory, energy, price or ranks, the most tokens per
    second or MFU, or the best compromises of several of these; or, with --model and --machine, the best plan
    of all that spread the training of a language model over a machine. Plans that bounds rule out are not
    simulated; without bounds, Optuna chooses the points. Points that a directory already holds are not
    simulated again. Exit status 1: no point meets the goal.
    """

    spec: Annotated[Path | None, "YAML file of a sweep with a section search", "SPEC", Argument()] = None
    out: Annotated[Path | None, "directory to write (default: ./NAME.search)", "DIR"] = None
    keep: Annotated[str, KEPT.format("best:3 of those found, all that were evaluated"), "WHICH"] = "none"
    json: Annotated[bool, "print the search as et-sim inspect --json does"] = False
    model: Annotated[str | None, "a preset, such as llama3-70b, or a config.json", "NAME", PLANS] = None
    machine: Annotated[str | None, MACHINE, "NAME:NPUS[,…]", PLANS] = None
    objective: Annotated[
        str | None,
        "tokens per second, price or energy of a token (default: tokens)",
        Option(choices=("tokens", "price", "energy")),
        PLANS,
    ] = None
    global_batch: Annotated[
        int | None,
        "sequences of a step in all replicas (default: as many as NPUs, and at least 128)",
        Option(least=1),
        PLANS,
    ] = None
    sequence: Annotated[int | None, "tokens of a sequence (default: the model's)", Option(least=1), PLANS] = (
        None
    )
    software: Annotated[str | None, "software of the step, as in et-sim make", PLANS] = None
    within: Annotated[float | None, WITHIN, Option(parse=parse_share), "SHARE", PLANS] = None
    budget: Annotated[int | None, "the most plans that are simulated", Option(least=1), PLANS] = None


def run(options: Options) -> int:
    """Evaluate some points, write the tables, and print the search."""
    if options.model is None:
        _check_spec(options)
        return evaluate(options, may_be_large=True, searches=True)
    if options.spec is not None:
        raise UsageError(
            f"--model {options.model} and {options.spec} are given",
            remedy="leave one of them out: the file names its own model",
        )
    machines = _machines(options)
    search = _plan_search(options, machines[0])
    print(f"et-sim: {search.assumed}", file=sys.stderr)
    name = Path(search.named).name.removesuffix(".json")
    folder = Path(f"{name}-{search.machine.replace(':', '-')}.search")
    description = search.description()
    then = partial(_on_machines, options, description, machines) if len(machines) > 1 else None
    return evaluate(options, may_be_large=True, searches=True, described=(description, folder), then=then)


def _on_machines(
    options: Options, search: Mapping[str, Any], machines: Sequence[str], folder: Path
) -> Further:
    """Simulate the best plan that a search found on several machines."""
    from et_sim.network.registry import as_named
    from et_sim.sweeps.same_plan import price_source, simulate_best
    from et_sim.sweeps.state import SweepProgress
    from et_sim.views.sweep.directory import open_sweep
    from et_sim.views.sweep.machines import machine_lines, machine_rows
    from et_sim.views.text import terminal_width

    model, when_full = as_named(options.network_model), options.when_full
    with SweepProgress() as progress:
        inner = simulate_best(search, folder, machines, model, when_full, progress)
    sweep = open_sweep(inner)
    sources = {name: price_source(name) for name in machines}
    lines = machine_lines(sweep, sources, terminal_width())
    return Further(["", *lines], {"machines": machine_rows(sweep, sources)})


def _check_spec(options: Options) -> None:
    """Refuse options of plans without a model, and neither a file nor a model."""
    for name in OF_PLANS:
        if getattr(options, name) is not None:
            raise UsageError(
                f"--{name.replace('_', '-')} belongs to --model",
                remedy="add --model, such as --model llama3-70b",
            )
    if options.spec is None:
        raise UsageError(
            "nothing is given to search",
            remedy="give --model and --machine, such as --model llama3-70b --machine h100-dgx:64, or a SPEC",
        )


def _machines(options: Options) -> list[str]:
    """Return the machines, of which the first one is searched."""
    from et_sim.sweeps.same_plan import machines_of

    if options.machine is None:
        raise UsageError("--model requires --machine", remedy="add it, as in --machine h100-dgx:64")
    return machines_of(options.machine)


def _plan_search(options: Options, machine: str) -> PlanSearch:
    """Return the search for plans on a machine that the options describe."""
    from et_sim.sweeps.plan_space import PlanSearch
    from et_sim.workloads.models.configuration import read_model, remark_on_sequence

    assert options.model is not None
    model = read_model(options.model)
    remark = remark_on_sequence(model)
    if remark and options.sequence is None:
        raise UsageError(remark, remedy="add --sequence, such as --sequence 8192")
    given: dict[str, Any] = {name: getattr(options, name) for name in OF_PLANS}
    chosen = {name: value for name, value in given.items() if value is not None} | {"machine": machine}
    return PlanSearch(model, options.model, **chosen)
