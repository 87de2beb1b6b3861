"""A run from its inputs to its result, for Python and for the command line.

It connects the packages in the order of the data: trace, machine, plan, engine, timeline.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import asdict, replace

from et_sim.basics.errors import UsageError
from et_sim.basics.units import format_ranks
from et_sim.machine import Notice
from et_sim.machine.model import System, TimeFactors
from et_sim.machine.system import peaks_of, powered_devices
from et_sim.machine.system_parts import CAPACITY, TRACKS, WhenFull
from et_sim.network.registry import check_model, ways_of_messages
from et_sim.run.options import (
    INSTEAD,
    MACHINE,
    RunOptions,
    check_samples,
)
from et_sim.run.planning import Planner
from et_sim.run.result import Result
from et_sim.run.simulation import (
    Change,
    Given,
    NoWatcher,
    Recorder,
    Task,
    Watcher,
    carry_out,
    is_worth_a_look,
    prepare,
    profile_facts,
    unchanged,
    unused_compute_model,
    unused_settings,
)
from et_sim.timeline import OutputFilter
from et_sim.timeline.explained import doubt, is_changed
from et_sim.timeline.network_load import overload
from et_sim.timeline.output_filter import EVERYTHING
from et_sim.timeline.scope import LINKS, MESSAGES, PATH, PHASES, PORTS, details_of, scope_of_machine
from et_sim.trace import Workload
from et_sim.trace.tensors import remark_on_unannotated
from et_sim.version import __version__

if TYPE_CHECKING:
    from et_sim.plan.spilled import Moved, Spilled
    from et_sim.tables.summary import Manifest

CHOSEN = ("profile", "other_profile", "fold", "alone", "isolated")


def execute(
    workload: Given,
    options: RunOptions,
    *,
    watch: Watcher | None = None,
    output_filter: OutputFilter = EVERYTHING,
    change: Change = unchanged,
    planner: Planner | None = None,
) -> Result:
    """Simulate a run; return it even if ranks never finish.

    `output_filter` selects the part of the run that will be written: ranks that the run does not have are
    refused at once. `change` modifies the machine that was read, and excludes samples. `planner` may keep the
    plans of runs.
    """
    watch = watch or NoWatcher()
    check_model(options.model)
    details = details_of(options.detail)
    check_samples(options)
    if not isinstance(workload, str | Path | Workload | Mapping):
        raise UsageError(
            f"a workload cannot be a {type(workload).__name__}",
            remedy="give the prefix of trace files, an et_sim.Workload, or a dict of jobs",
        )
    watch.stage("reading machine and traces")
    task = prepare(workload, options, change, planner=planner)
    machine, layer_file = task.machine, task.layer_file
    chosen = task.network_model()
    output_filter.check_ranks(task.workload.ranks)
    sampler = None
    if options.samples is not None:
        from et_sim.samples.study import Sampler

        assert change is unchanged  # other processes read the machine anew
        watch.stage("planning samples")
        sampler = Sampler(workload, options, task)
    recorder = _recorder_of(details, output_filter, with_phases=layer_file is not None)
    carried = carry_out(task, options.fold, watch, recorder, planner)
    lowering, outcome, moves, full = carried.lowering, carried.outcome, carried.moves, carried.full
    until_end = outcome if carried.is_stopped else None
    if full is not None and until_end is not None:
        watch.stage("simulating again until memory is full")
        network = machine.network_of(has_contention=chosen.HAS_CONTENTION)
        stopped = recorder.run(
            outcome.plan, network, chosen, watch, until_ns=full.time_ns, ties_alike=task.ties_alike
        )
        assert stopped is not None  # an earlier simulation ran beyond that time
        outcome = stopped
    notices = (*outcome.plan.notices, *chosen.remarks(machine.network))
    if layer_file is None:
        notices = (*notices, *unused_settings(machine))
    if options.compute_model is not None:
        notices = (*notices, *unused_compute_model(machine, lowering))
    manifest = make_manifest(task, notices, lowering.inputs) | {"machine": options.machine_name}
    manifest["npus"] = machine.network.ranks
    manifest["routing"] = ways_of_messages(
        chosen, machine.network, len(outcome.plan.actors), may_fold=options.fold
    )
    manifest["jobs"] = []
    if task.workload.jobs:
        from et_sim.run.isolated import jobs_as_dicts

        manifest["jobs"] = jobs_as_dicts(workload, options, task, carried, watch)
    manifest["other_profile"] = None
    if options.other_profile and until_end is None and is_worth_a_look(task, outcome):
        from et_sim.run.other_profile import other_profile

        watch.stage("simulating the corrected profile, too")
        manifest["other_profile"] = other_profile(
            options, change, task, outcome, moves.workload if moves else task.workload
        )
    manifest["configuration"] = _configuration(task, options)
    manifest["detail"] = list(details if layer_file is None else details_of((*details, PHASES)))
    layers = (
        layer_file.figures(outcome, recorder.phases)
        if layer_file and recorder.phases and outcome.is_complete
        else None
    )
    result = Result(
        outcome,
        lowering.workload,
        cast("Manifest", manifest),
        _command(workload, task, options),
        recorder.causal_events,
        recorder.phases,
        layers,
        recorder.messages,
        recorder.ports,
        full,
        until_end,
        _moved_in(machine.system, moves),
        None if machine.system.local_memory is None else machine.system.local_memory.capacity_bytes,
    )
    if full is not None and not full.stopped:
        place = _base(machine.system.local_memory.place) if machine.system.local_memory else ""
        manifest["warnings"].append({"place": place, "key": CAPACITY, "text": full.sentence})
    if too_much := overload(outcome, machine.network):
        manifest["warnings"].append({"place": "", "key": "", "text": too_much.sentence})
    if text := doubt(result.explained, is_changed=is_changed(outcome, task.workload, machine.system)):
        manifest["warnings"].append({"place": _base(task.workload.source), "key": "", "text": text})
    if sampler is not None and result.is_complete:
        result.samples = sampler.study(result, watch)
    return result


def _command(workload: Any, task: Task, options: RunOptions) -> dict[str, Any] | None:
    """Return the inputs and options of the run if all of the inputs are files, and none is a program."""
    given = {"workload": workload} | {name: getattr(options, name) for name in MACHINE}
    files = {name: path for name, path in given.items() if path is not None}
    if options.compute_model is not None or not all(isinstance(path, str | Path) for path in files.values()):
        return None
    where = {name: str(Path(path).resolve()) for name, path in files.items()}
    names = {name: getattr(options, name) for name in ("machine", *INSTEAD)}
    return {
        "files": where,
        **{name: value for name, value in names.items() if value is not None},
        "profile": task.profile_given,
        "fold": options.fold,
        **({"ties_alike": True} if options.ties_alike else {}),
        "alone": options.alone,
        "retime": options.retime,
    }


def _configuration(task: Task, options: RunOptions) -> dict[str, Any]:
    """Return the machine as it was read, with further options of `simulate`."""
    chosen = {name: getattr(options, name) for name in CHOSEN}
    chosen |= {"ties_alike": True} if options.ties_alike else {}
    if options.compute_model is not None:
        chosen["compute_model"] = task.machine.system.compute[0].label
    chosen |= {name: value for name in INSTEAD if (value := getattr(options, name)) is not None}
    return {**task.machine.configuration, **chosen}


def _recorder_of(details: Collection[str], output_filter: OutputFilter, *, with_phases: bool) -> Recorder:
    """Return the recorder of these details; `with_phases`: also of the phases of collectives."""
    recorder = Recorder(links=LINKS in details)
    if not with_phases and not {PATH, PHASES, MESSAGES, PORTS}.intersection(details):
        return recorder
    from et_sim.timeline import CausalEvents, MessageSpool, Phases, PortRecord

    return replace(
        recorder,
        causal_events=CausalEvents() if PATH in details else None,
        phases=Phases() if PHASES in details or with_phases else None,
        messages=MessageSpool(output_filter) if MESSAGES in details else None,
        ports=PortRecord() if PORTS in details else None,
    )


def _moved_in(system: System, moves: Spilled | None) -> Moved | None:
    """Return the moves of a run; None if tensors never move on this machine."""
    if system.local_memory is None or system.local_memory.when_full is not WhenFull.SPILL:
        return None
    from et_sim.plan.spilled import Moved

    return Moved() if moves is None else moves.moved


def make_manifest(
    task: Task, of_plan: tuple[Notice, ...], programs: tuple[tuple[str, str], ...]
) -> dict[str, Any]:
    """Return the inputs of a run: enough to repeat it, and nothing that depends on the host."""
    workload, machine = task.workload, task.machine
    texts = [("", text) for text in workload.notices]
    if machine.system.track_local_mem and (remark := remark_on_unannotated(workload)):
        texts.append((CAPACITY if machine.system.local_memory else TRACKS, remark))
    accuracy = machine.system.accuracy
    notices = [{"place": _base(workload.source), "key": key, "text": text} for key, text in texts]
    caps = sorted({device.power_cap for device in powered_devices(machine.system) if device.power_cap})
    return {
        "et_sim": __version__,
        "model": str(task.model.name),
        "model_note": task.model.note,
        "scope": scope_of_machine(machine, task.model.scope[:2]),
        **profile_facts(task),
        "software": workload.software and workload.software.as_written(),
        "ranks": workload.ranks,
        "uneven": {
            "ranks": machine.straggling_ranks,
            "links": len(machine.network.links),
            "late_ns": workload.late_ns,
        },
        "costs": machine.system.costs and asdict(machine.system.costs),
        **({"power_caps": caps} if caps and not machine.system.replay_only else {}),
        **({} if accuracy is None else {"accuracy": accuracy.written}),
        "peak_tflops": peaks_of(machine.system),
        "time_factors": [_factors(one) for one in machine.system.time_factors],
        "distinct_traces": len(workload.templates),
        "inputs": [
            {"file": _base(path), "sha256": digest}
            for path, digest in (*machine.inputs, *programs, *workload.inputs)
        ],
        "warnings": notices + [_as_dict(notice) for notice in (*machine.warnings, *of_plan)],
        "defaults": [_as_dict(notice) for notice in machine.defaults],
    }


def _factors(one: TimeFactors) -> dict[str, Any]:
    """Return an entry of the time factors, as in the system file."""
    ranks = "all" if one.ranks is None else format_ranks(rank for piece in one.ranks for rank in piece)
    named = {} if one.name is None else {"name": one.name}
    return {"ranks": ranks, **named, **{kind.value: factor for kind, factor in one.factors.items()}}


def _as_dict(notice: Any) -> dict[str, str]:
    return {"place": _base(notice.place), "key": notice.key, "text": notice.text}


@lru_cache(64)
def _base(path: str) -> str:
    """Return a file's own name, since its folder depends on the host."""
    return PurePath(path).name
