"""`et-sim check`: find the problems of a run without running it.

The trace room checks the workload; the rooms of a run check the machine, and both together.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from msgspec.structs import replace

from et_sim.basics.errors import EtSimError, UsageError
from et_sim.basics.units import plural
from et_sim.cli.options import MachineOptions
from et_sim.cli.progress import printing
from et_sim.cli.run import WORKLOAD_HELP
from et_sim.network.registry import as_named, check_model, choose_model, machine_for, model_of
from et_sim.run.options import HELP, INSTEAD, MACHINE, machine_parts

if TYPE_CHECKING:
    from et_sim.machine import Machine
    from et_sim.plan.lowering import Lowering
    from et_sim.trace import Workload
    from et_sim.trace.preflight import Problem

Result = TypeVar("Result")


class Options(MachineOptions):
    """Check a workload, alone or together with a machine, without running it."""

    workload: Annotated[str, WORKLOAD_HELP]
    alone: Annotated[bool, HELP["alone"]] = False
    json: Annotated[bool, "print the findings as JSON"] = False


def run(options: Options) -> int:
    """Print the findings; return 2 if one of them is an error."""
    from et_sim.plan.mismatches import rules_of
    from et_sim.trace.preflight import CorrectionEffects, find_problems

    options.network_model = as_named(options.network_model)
    check_model(options.network_model)
    problems: list[Problem] = []
    machine = _whole_machine(options, problems)
    ranks = machine.network.ranks if machine else _ranks_of_network(options, problems)
    try:
        workload, machine = _workload(options, ranks, machine)
    except EtSimError as error:
        if problems:  # problems of the machine must not get lost
            error.cause += f"; moreover, {problems[0].text}"
        raise
    if machine and workload.profile and not machine.names_profile:
        problems.clear()
        machine = _whole_machine(options, problems, workload.profile)
    if machine and workload.jobs:
        machine = replace(machine, groups=workload.job_groups)
    groups = machine.groups if machine else _read_parts(options, workload.ranks, problems)
    groups = workload.job_groups if workload.jobs else groups
    problems += [_warning("workload", text) for text in workload.notices]
    rules = rules_of(machine.system) if machine else CorrectionEffects()
    if options.alone:
        rules = replace(rules, communicates=False)
    problems += find_problems(workload, groups=groups, rules=rules)
    if machine and not _has_errors(problems):
        _attempt(problems, lambda: _plan(workload, machine, options, problems))
    problems.sort(key=lambda problem: problem.severity != "error")
    status = 2 if _has_errors(problems) else 0
    with printing(status):
        print(_as_json(workload, problems) if options.json else _as_text(workload, problems))
    return status


def _workload(
    options: Options, ranks: int | None, machine: Machine | None
) -> tuple[Workload, Machine | None]:
    """Return the workload; a layer file may divide dimensions of the machine."""
    from et_sim.run.other_inputs import (
        LayerFileRun,
        machine_alone,
        read_alone,
        refuse_without_times,
        workload_without_machine,
    )
    from et_sim.run.simulation import is_layer_file, merged
    from et_sim.trace import Workload, read_workload

    path = options.workload
    is_open = not options.profile and machine is not None and not machine.names_profile
    jobs = merged(path, ranks, alone=options.alone, groups=options.groups, is_open=is_open)
    if isinstance(jobs, Workload):
        return jobs, machine
    if options.alone and not is_layer_file(path):
        workload = read_alone(path)
        refuse_without_times(workload)
        return workload, machine_alone(machine, workload.ranks) if machine else None
    if not is_layer_file(path):
        return read_workload(path, ranks), machine
    if machine is not None:
        layer_file = LayerFileRun(path, machine)
        return layer_file.workload, layer_file.machine
    return workload_without_machine(path, ranks), None


def _whole_machine(options: Options, problems: list[Problem], profile: str | None = None) -> Machine | None:
    """Return the machine, if system and network are given and sound."""
    if options.machine is None and not (options.system and options.network):
        for name in ("profile", *INSTEAD):
            if getattr(options, name):
                option = f"--{name.replace('_', '-')}"
                raise UsageError(f"{option} requires a machine", remedy="give --system and --network, too")
        return None
    from et_sim.machine import read_machine

    given = machine_parts({name: getattr(options, name) for name in MACHINE}, options.machine)
    given |= {"profile": options.profile or profile}
    given |= {name: getattr(options, name) for name in INSTEAD}
    machine = _attempt(problems, lambda: read_machine(**given))
    if machine:
        for warning in machine.warnings:
            key = f"key {warning.key!r}: " if warning.key else ""
            problems.append(_warning("machine", f"{warning.place}: {key}{warning.text}"))
    return machine


def _warn_of_full_memory(problems: list[Problem], machine: Machine, lowering: Lowering) -> None:
    """Add a warning about tensors that do not fit from the start, where a run only reports that."""
    from et_sim.machine.model import WhenFull
    from et_sim.plan.lowering import refuse_too_much_at_start

    memory = machine.system.local_memory
    if memory is None or memory.when_full is not WhenFull.REPORT:
        return
    try:
        refuse_too_much_at_start(
            replace(memory, when_full=WhenFull.STOP), lowering.tensors, "system configuration"
        )
    except EtSimError as error:
        problems.append(_warning("machine", f"{error.place}: {error.cause}"))


def _plan(workload: Workload, machine: Machine, options: Options, problems: list[Problem]) -> None:
    """Add the problems of the plan: refusals, remarks and stalls."""
    from et_sim.plan.lowering import Lowering, assemble
    from et_sim.plan.members import Actors
    from et_sim.plan.mismatches import find_renumbered

    choice = choose_model(options.network_model, machine, is_preset=options.machine is not None)
    machine = machine_for(choice, machine)
    chosen = model_of(choice, machine)
    lowering = Lowering(workload, machine)
    remarks = tuple(chosen.remarks(machine.network))
    _warn_of_full_memory(problems, machine, lowering)
    plan = assemble(lowering, Actors.one_per_rank(workload.ranks))
    problems += [_warning("machine", f"{n.place}: {n.text}") for n in (*plan.notices, *remarks)]
    problems += find_renumbered(plan, lowering.workload)


def _ranks_of_network(options: Options, problems: list[Problem]) -> int | None:
    """Return the number of NPUs of the network, if it is given and sound."""
    given = options.network
    if not given:
        return None
    from et_sim.machine import read_network_alone

    network = _attempt(problems, lambda: read_network_alone(given))
    return network.ranks if network else None


def _read_parts(options: Options, ranks: int, problems: list[Problem]) -> dict[str, tuple[int, ...]] | None:
    """Check the other files of an incomplete or unsound machine one by one, and return the groups."""
    from et_sim.documents.keys import Remarks
    from et_sim.machine import read_system_alone
    from et_sim.machine.readers import read_groups
    from et_sim.machine.recognise import MachineFile
    from et_sim.machine.remote_memory import read_memory
    from et_sim.machine.sources import load

    if system := options.system:
        _attempt(problems, lambda: read_system_alone(system))
    if memory := options.memory:
        _attempt(problems, lambda: read_memory(load(memory, MachineFile.MEMORY), ranks, Remarks()))
    groups = options.groups
    if not groups or (groups == "empty" and not Path("empty").exists()):
        return None  # "empty" means no groups in the reference
    return _attempt(problems, lambda: read_groups(load(groups, MachineFile.GROUPS), ranks))


def _attempt(problems: list[Problem], read: Callable[[], Result]) -> Result | None:
    """Return the result of `read`; a refusal becomes a finding, once."""
    from et_sim.trace.preflight import Problem

    try:
        return read()
    except EtSimError as error:
        text = f"{error.place}: {error.cause}" if error.place else error.cause
        problem = Problem("error", "refused", "", text, error.remedy)
        if problem not in problems:
            problems.append(problem)
        return None


def _warning(kind: str, text: str) -> Problem:
    from et_sim.trace.preflight import Problem

    return Problem("warning", kind, "", text, "")


def _count(problems: list[Problem]) -> int:
    """Return the number of problems, including similar ones."""
    return sum(1 + problem.like for problem in problems)


def _has_errors(problems: list[Problem]) -> bool:
    return any(problem.severity == "error" for problem in problems)


def _as_text(workload: Workload, all_problems: list[Problem]) -> str:
    """Return the findings by severity, and the size of the workload."""
    size = workload_size(workload)
    nouns = zip(size.values(), ("rank", "node", "distinct trace"), strict=True)
    looked_at = ", ".join(plural(number, noun) for number, noun in nouns)
    if not all_problems:
        return f"no problems found: {looked_at}"
    lines = []
    for severity in ("error", "warning"):
        problems = [problem for problem in all_problems if problem.severity == severity]
        if problems:
            lines += [f"{plural(_count(problems), severity)}:"]
        for problem in problems:
            lines += [f"  {problem.text}", *([f"    -> {problem.remedy}"] if problem.remedy else [])]
    return "\n".join([*lines, f"looked at {looked_at}"])


def _as_json(workload: Workload, problems: list[Problem]) -> str:
    from msgspec import to_builtins

    errors = _count([problem for problem in problems if problem.severity == "error"])
    content = {
        "workload": workload.source,
        **workload_size(workload),
        "errors": errors,
        "warnings": _count(problems) - errors,
        "problems": [to_builtins(problem) for problem in problems],
    }
    return json.dumps(content, indent=2, ensure_ascii=False)


def workload_size(workload: Workload) -> dict[str, int]:
    """Return ranks, nodes over all ranks, and distinct traces."""
    return {
        "ranks": workload.ranks,
        "nodes": workload.nodes,
        "distinct_traces": len(workload.templates),
    }
