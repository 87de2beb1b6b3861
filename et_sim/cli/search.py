"""`et-sim search`: find the best points of a sweep, or the best plan of a model, without trying all."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from et_sim.basics.declared_options import Argument, Option, OptionGroup, flag_of
from et_sim.basics.errors import UsageError
from et_sim.basics.units import parse_time_ns
from et_sim.cli.jobs import whole_numbers
from et_sim.cli.options import parse_share
from et_sim.cli.sweep import KEPT, EvaluationOptions, Further, evaluate
from et_sim.network.registry import as_named

if TYPE_CHECKING:
    from et_sim.sweeps.plan_space import PlanSearch
    from et_sim.sweeps.serving_space import ServingSearch

PLANS = OptionGroup("all plans of a language model, in place of SPEC")
SERVING = OptionGroup("all fleets that serve requests, with --model and --machine")
OF_PLANS = ("machine", "objective", "global_batch", "sequence", "software", "within", "budget")
OF_TRAINING = ("global_batch", "sequence", "software", "within")
OF_SERVING = ("serve", "engine", "concurrency", "image_tokens", "ttft", "tpot", "good_share")
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
    of all that spread the training of a language model over a machine, or with --serve the replicas that give
    the most tokens per second to an NPU, and to a user. Plans that bounds rule out are not
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
        "tokens per second, price or energy of a token (default: tokens); with --serve also npus, the"
        " fewest that serve the requests (default: tokens per second of an NPU, and of a user)",
        Option(choices=("tokens", "price", "energy", "npus")),
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
    serve: Annotated[
        str | None,
        "requests, as et-sim serve takes them: the search is for replicas that serve them",
        "REQUESTS",
        SERVING,
    ] = None
    engine: Annotated[
        str | None, "engine, as in et-sim serve (default: each of them in turn)", "NAME", SERVING
    ] = None
    concurrency: Annotated[
        tuple[int, ...] | None,
        "requests under way at a time, as in 16,64,256, each a point (default: as they arrive)",
        Option(parse=whole_numbers),
        "N",
        SERVING,
    ] = None
    image_tokens: Annotated[
        int | None,
        "tokens that the images of each request add to its prompt, as in et-sim serve",
        Option(least=1),
        "N",
        SERVING,
    ] = None
    ttft: Annotated[
        float | None,
        "the longest time to first token of a good request",
        Option(parse=parse_time_ns, least=1),
        "TIME",
        SERVING,
    ] = None
    tpot: Annotated[
        float | None,
        "the longest time per output token of a good request",
        Option(parse=parse_time_ns, least=1),
        "TIME",
        SERVING,
    ] = None
    good_share: Annotated[
        float | None,
        "with --ttft or --tpot: share of requests that must be good (default: 0.99)",
        Option(parse=parse_share),
        "SHARE",
        SERVING,
    ] = None


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
    if options.serve is None:
        search: PlanSearch | ServingSearch = _plan_search(options, machines[0])
    elif len(machines) > 1:
        raise UsageError(
            f"--machine is {options.machine}, and fleets that serve are searched on one machine",
            remedy=f"give one, such as --machine {machines[0]}",
        )
    else:
        search = _serving_search(options, machines[0])
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
    for name in (*OF_PLANS, *OF_SERVING):
        if getattr(options, name) is not None:
            raise UsageError(
                f"{flag_of(name)} belongs to --model",
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

    for name in OF_SERVING:
        if getattr(options, name) is not None:
            raise UsageError(
                f"{flag_of(name)} belongs to --serve",
                remedy="add --serve, such as --serve poisson:10,200,1024,100",
            )
    assert options.model is not None
    model = read_model(options.model)
    remark = remark_on_sequence(model)
    if remark and options.sequence is None:
        raise UsageError(remark, remedy="add --sequence, such as --sequence 8192")
    given: dict[str, Any] = {name: getattr(options, name) for name in OF_PLANS}
    chosen = {name: value for name, value in given.items() if value is not None} | {"machine": machine}
    return PlanSearch(model, options.model, **chosen)


def _serving_search(options: Options, machine: str) -> ServingSearch:
    """Return the search for fleets that the options describe."""
    from et_sim.sweeps.serving_space import ServingSearch
    from et_sim.workloads.models.configuration import read_model

    for name in OF_TRAINING:
        if getattr(options, name) is not None:
            raise UsageError(
                f"{flag_of(name)} is about training, and --serve is given", remedy="leave it out"
            )
    if options.good_share is not None and options.ttft is None and options.tpot is None:
        raise UsageError("--good-share requires --ttft or --tpot", remedy="give one of them, or leave it out")
    assert options.model is not None
    assert options.serve is not None
    return ServingSearch(
        read_model(options.model),
        options.model,
        machine,
        options.serve,
        options.objective,
        options.engine,
        options.concurrency or (),
        options.ttft,
        options.tpot,
        options.good_share,
        options.budget,
        options.image_tokens,
    )
