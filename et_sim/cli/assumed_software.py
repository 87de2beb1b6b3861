"""Training whose software is not stated: the default is named, and so is the time of a step in another one.

The other software is one that the user may well mean: on TPUs MaxText, which is made for them, and else
torchtitan, the trainer of PyTorch's own project, in most of its kernels and exchanges unlike the default.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from et_sim.basics.declared_options import Command, fields_of, flag_of
from et_sim.basics.errors import EtSimError
from et_sim.basics.files import is_file
from et_sim.cli.jobs import CHANGES, LLM, given, plan_options, read_plan
from et_sim.trace.disk import ENDING
from et_sim.trace.manifest import recipe_of
from et_sim.workloads.software import DEFAULT, read_software

if TYPE_CHECKING:
    from et_sim.run.options import RunOptions
    from et_sim.run.result import Result
    from et_sim.tables.summary import OtherSoftware

OTHER, ON_TPU = "torchtitan", "maxtext"
MOST_NODES = 500_000  # and messages: making and simulating them takes a few seconds


def other_than_default(machine: str | None) -> str:
    """Return the name of the other software on a machine."""
    return ON_TPU if machine is not None and machine.startswith("tpu-") else OTHER


def recipe_for_manifest(options: Command, sequence: int) -> dict[str, Any]:
    """Return the recipe of a language model, of this length of sequences, that options of `make` describe;
    paths are from its manifest."""
    from et_sim.recipes.recipe import MAKE, for_machine
    from et_sim.recipes.servings import PLAN

    chosen = vars(options)
    model, folder = chosen["model"], Path(chosen["output"]).parent
    plan = {name.replace("_", "-"): value for name, value in given(options, plan_options()).items()}
    recipe = {
        MAKE: LLM,
        "model": os.path.relpath(model, folder) if is_file(model) else model,
        **given(options, CHANGES),
        "sequence": sequence,
        PLAN: plan,
    }
    return dict(for_machine(recipe, chosen["machine"]))


def in_other_software(
    result: Result, options: RunOptions, announce: Callable[[str], None]
) -> OtherSoftware | None:
    """Return the step of a run in another software; None if its software is stated, or its plan is unknown.

    The size of the run, and never a measured time, decides whether the step is simulated.
    """
    from et_sim.run.small_run import size_of
    from et_sim.run.variation import NOT_SIMULATED, REFUSED

    workload = result.workload
    if workload.software is None or not workload.software.is_assumed or not result.is_complete:
        return None
    name = other_than_default(options.machine)
    try:
        made = recipe_of(workload)
    except EtSimError as error:  # the manifest that was read is no longer there
        return {"name": name, "status": REFUSED, "makespan_ns": None, "reason": error.cause}
    if made is None:
        return None
    recipe, is_unchanged = made
    if not is_unchanged:
        reason = "the manifest, its traces or the model's file were changed after they were made"
        return {"name": name, "status": NOT_SIMULATED, "makespan_ns": None, "reason": reason}
    if size_of(result.outcome.plan) > MOST_NODES:
        reason = f"more than {MOST_NODES:,} nodes and messages"
        return {"name": name, "status": NOT_SIMULATED, "makespan_ns": None, "reason": reason}
    announce(f"simulating the step in {name}, too")
    try:
        return _simulated(name, recipe, Path(workload.source).parent, options)
    except EtSimError as error:
        return {"name": name, "status": REFUSED, "makespan_ns": None, "reason": error.cause}


def _simulated(name: str, recipe: dict[str, Any], folder: Path, options: RunOptions) -> OtherSoftware:
    """Make a recipe for a software, and simulate it on the machine of the options."""
    from et_sim.recipes.recipe import make
    from et_sim.recipes.servings import PLAN
    from et_sim.run.simulation import prepare
    from et_sim.run.small_run import ending_if_small
    from et_sim.run.variation import NOT_SIMULATED

    workload = make({**recipe, PLAN: {**recipe[PLAN], "software": name}}, folder)
    ending = ending_if_small(prepare(workload, options), options, 4 * MOST_NODES)
    other: OtherSoftware = {"name": name, "status": ending.status, "makespan_ns": ending.makespan_ns}
    if ending.status == NOT_SIMULATED:
        other["reason"] = f"more than {4 * MOST_NODES:,} nodes and messages"
    return other


def assumed_software(options: Command) -> list[str]:
    """Return lines for a job whose software is not given: the default, and the same job for another."""
    by, other = read_software(DEFAULT), other_than_default(vars(options)["machine"])
    prefix = f"{vars(options)['output'].removesuffix(ENDING)}-{other}"
    changed = type(options)({**vars(options), "software": other, "output": prefix})
    line = f"assumes {by.name}: {by.about}; steps of other software take other times"
    try:
        read_plan(changed)
    except EtSimError:  # the other software does not support the plan
        return [f"{line}: --software names another"]
    return [line, f"as {other}: {as_command(changed)}"]


def as_command(options: Command) -> str:
    """Return the command line of options; those with their default are left out."""
    words = ["et-sim", vars(options)["command"]]
    for name in fields_of(type(options)):
        value, default = vars(options).get(name), getattr(type(options), name, None)
        follows = name == "ranks" and vars(options)["machine"]
        if value in (default, None, False) or follows:
            continue
        flag = {"kind": [], "output": ["-o"]}.get(name, [flag_of(name)])
        words += flag if value is True else [*flag, _word(value)]
    return shlex.join(words)


def _word(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
