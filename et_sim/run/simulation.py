"""The simulation of a workload on a machine, and repetitions with other memory or without folding."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.engine_names import PADDED_EXPERTS
from et_sim.basics.errors import UsageError
from et_sim.basics.files import is_file
from et_sim.documents.recognise import FileKind, kind_of
from et_sim.engine.driver import run_plan
from et_sim.engine.outcome import Outcome
from et_sim.engine.start import KeptStart
from et_sim.engine.transport.network_seam import NetworkModel, packets_expected
from et_sim.fold import TIE
from et_sim.machine import Machine, Network, Notice
from et_sim.machine.corrections import Correction, Profile
from et_sim.machine.model import LayerSettings, TimeFactors, WhenFull, WorkKind
from et_sim.machine.sources import Source
from et_sim.machine.system_parts import CAPACITY, RESERVED, TRACKS
from et_sim.network.registry import ModelChoice, choose_model, machine_for, model_of
from et_sim.plan.host import KEY as HOST_TIME
from et_sim.plan.lowering import Lowering
from et_sim.plan.mismatches import refuse_mismatches
from et_sim.plan.records import LoweredPlan
from et_sim.run.options import RunOptions
from et_sim.run.planning import Plan, Planner, plan_of
from et_sim.trace import Workload, read_workload
from et_sim.trace.tensors import names_tensors

if TYPE_CHECKING:
    from et_sim.plan.spilled import Spilled
    from et_sim.run.other_inputs import LayerFileRun
    from et_sim.timeline import CausalEvents, MessageSpool, Phases, PortRecord
    from et_sim.timeline.out_of_memory import OutOfMemory

ALONE = "simulating every rank by itself"
TIES_ALIKE = Notice(
    "",
    "--ties-alike",
    "the order of some events in one nanosecond has an effect, and is the same on all folded ranks; "
    "simulated by themselves, ranks may take another order",
)
PADDED_FOR_HOPPER = Notice(
    "", "separate", "experts have padded rows, as on Hopper: on this machine, their products take too long"
)
PACKETS_IN_A_SECOND = 500_000  # on trees, compiled; on stars, more
SECONDS_WORTH_SAYING, HOURS_FROM = 60, 3600
MOST_RANKS_EXPLAINED = 65_536
Change = Callable[[Machine], Machine]
SingleWorkload = str | Path | Workload
Given = str | Path | Workload | Mapping[str, Any]  # a mapping: the keys of a job file


def unchanged(machine: Machine) -> Machine:
    """Return the machine unchanged."""
    return machine


class Watcher(Protocol):
    """Receives the progress of a run."""

    def stage(self, name: str) -> None:
        """Begin another stage."""

    def report(self, now_ns: int, done: int, expected: int, nodes: int, all_nodes: int, noun: str, /) -> None:
        """Report the progress: messages or packets, and nodes that are done."""


class NoWatcher:
    """A watcher that ignores progress."""

    def stage(self, name: str) -> None: ...
    def report(
        self, now_ns: int, done: int, expected: int, nodes: int, all_nodes: int, noun: str, /
    ) -> None: ...


class NamedBy(StrEnum):
    """The source of the profile's name; the first of these that names one counts."""

    OPTION = "option"
    SYSTEM = "system"
    WORKLOAD = "workload"
    NO_SOURCE = "nobody"


class Task(Struct, frozen=True, eq=False):
    """A workload, a machine, and the choices for a simulation."""

    workload: Workload
    machine: Machine
    layer_file: LayerFileRun | None
    profile_given: str | None  # by an option or the workload, instead of the system file
    profile_named_by: NamedBy
    model: ModelChoice
    ties_alike: bool = False
    given: SingleWorkload = ""  # the workload as it was read, or a layer file, which is read for the machine

    def network_model(self) -> NetworkModel:
        """Return the model on the machine's network; refuse unsupported networks."""
        return model_of(self.model, self.machine)


def prepare(
    workload: Given,
    options: RunOptions,
    change: Change = unchanged,
    corrections: Collection[Correction] = (),
    planner: Planner | None = None,
) -> Task:
    """Read the inputs of a run; `change` modifies the machine that was read.

    `corrections` are switched on in addition to those of the machine's files.
    """
    planner = planner or Planner()
    given = options.parts | {"corrections": corrections}
    usual = (workload.profile or None) if isinstance(workload, Workload) else None
    profile, machine = options.profile, planner.machine(**given, profile=options.profile, usual_profile=usual)
    named_by = NamedBy.OPTION if profile else NamedBy.SYSTEM if machine.names_profile else NamedBy.NO_SOURCE
    if options.isolated and not is_several(workload):
        raise UsageError("--isolated is about several jobs", remedy="run a job file, or leave it out")
    is_open, npus = named_by is NamedBy.NO_SOURCE, machine.network.ranks
    workload = merged(workload, npus, alone=options.alone, groups=options.groups, is_open=is_open)
    if not isinstance(workload, Workload):
        if is_layer_file(workload):
            if options.alone:
                raise UsageError(
                    "a layer file records no times of communication",
                    place=str(workload),
                    remedy="leave out --alone",
                )
            if options.compute_model is not None:
                raise UsageError(
                    "a layer file states the times of its kernels",
                    place=str(workload),
                    remedy="leave out --compute-model",
                )
            from et_sim.run.other_inputs import LayerFileRun

            layer_file = LayerFileRun(workload, change(_named(machine, options, tracks=False)))
            machine = layer_file.machine
            model = choose_model(options.model, machine, is_preset=options.machine is not None)
            machine = machine_for(model, machine)
            workload_of = layer_file.workload
            return Task(
                workload_of, machine, layer_file, profile, named_by, model, options.ties_alike, workload
            )
        if options.alone:
            from et_sim.run.other_inputs import read_alone

            workload = read_alone(workload)
        else:
            workload = read_workload(workload, machine.network.ranks)
    given_workload = workload
    if workload.profile and named_by is NamedBy.NO_SOURCE:
        profile, named_by = workload.profile, NamedBy.WORKLOAD
        if usual is None:
            machine = planner.machine(**given, profile=profile)
    machine = change(_named(machine, options, tracks=names_tensors(workload)))
    machine = _with_engine(_with_exchanges(machine, workload), workload)
    machine = _with_factor(_with_reserved(machine, workload), workload)
    if options.retime:
        machine = _retiming(machine)
    if options.compute_model is not None:
        from et_sim.compute.custom import with_own_times

        machine = replace(machine, system=with_own_times(machine.system, options.compute_model))
    waits = workload.software is not None and workload.software.host_waits
    workload, remarks = planner.with_host(workload, *_host_times(workload, machine), waits=waits)
    machine = replace(machine, warnings=(*machine.warnings, *remarks))
    if workload.jobs:
        machine = replace(machine, groups=workload.job_groups)
    if options.alone:
        from et_sim.run.other_inputs import machine_alone, refuse_without_times

        refuse_without_times(workload)
        machine = machine_alone(machine, workload.ranks)
    model = choose_model(options.model, machine, is_preset=options.machine is not None)
    machine = machine_for(model, machine)
    return Task(workload, machine, None, profile, named_by, model, options.ties_alike, given_workload)


def _with_exchanges(machine: Machine, workload: Workload) -> Machine:
    """Return the machine with the processors and the own collectives of the workload's software.

    The machine overrides the software.
    """
    system, software = machine.system, workload.software
    library = system.library
    if library is None or software is None:
        return machine
    if software.processors and not library.most_processors:
        library = replace(library, most_processors=software.processors)
    if software.engine and not library.engine:
        library = replace(library, engine=software.engine, eager=software.eager)
    if software.expert_exchange and not library.expert_exchange:
        library = replace(library, expert_exchange=software.expert_exchange)
    if library is system.library:
        return machine
    return replace(machine, system=replace(system, library=library))


def _with_engine(machine: Machine, workload: Workload) -> Machine:
    """Return the machine with the kernels of the workload's inference engine."""
    software = workload.software
    if software is None or not software.engine:
        return machine
    from et_sim.machine.engine_kernels import with_engine_kernels, words_on

    library = machine.system.library
    exchange = library.expert_exchange if library else software.expert_exchange
    own_products = bool(exchange) or PADDED_EXPERTS in software.separate
    system = with_engine_kernels(machine.system, software.engine, deepgemm=own_products)
    if words_on(machine.system, software.separate) != software.separate:
        machine = replace(machine, warnings=(*machine.warnings, PADDED_FOR_HOPPER))
    return replace(machine, system=system)


def _with_reserved(machine: Machine, workload: Workload) -> Machine:
    """Return the machine without the processors that exchanges hold throughout.

    Exchanges take no others, and memory only while they run.

    The machine overrides the software: `occupies` of its library, and `overlap`.
    """
    software, system = workload.software, machine.system
    library = system.library
    if software is None or not software.reserved or system.overlap:
        return machine
    if library is not None and not library.occupies:
        return machine
    from et_sim.machine.roofline import RooflineDevice

    rules = [
        replace(rule, settings=rule.settings.without_processors(software.reserved))
        if isinstance(rule.settings, RooflineDevice)
        else rule
        for rule in system.compute
    ]
    library = None if library is None else replace(library, occupies=False, shares_memory=True)
    return replace(machine, system=replace(system, compute=tuple(rules), library=library))


def _with_factor(machine: Machine, workload: Workload) -> Machine:
    """Return the machine with kernels slowed by the factor of the workload's software."""
    software = workload.software
    if software is None or software.kernels == 1:
        return machine
    entry = TimeFactors(None, None, {WorkKind.KERNELS: software.kernels}, f"<{software.name}>")
    factors = (*machine.system.time_factors, entry)
    return replace(machine, system=replace(machine.system, time_factors=factors))


def _host_times(workload: Workload, machine: Machine) -> tuple[float, float]:
    """Return the host's time for a launch, and before the first one; the machine overrides the software."""
    software, launch_ns = workload.software, machine.system.host_ns
    if software is None:
        return launch_ns, 0.0
    is_stated = launch_ns or HOST_TIME in machine.configuration["system"]
    return launch_ns if is_stated else software.launch_ns, software.step_ns


def _named(machine: Machine, options: RunOptions, *, tracks: bool) -> Machine:
    """Return the machine; a preset with a capacity tracks memory only if the workload names tensors."""
    given: object = options.system
    is_its_own = given is None or (isinstance(given, Source) and given.place == options.machine)
    if tracks or options.machine is None or not is_its_own or options.when_full is not None:
        return machine
    omitted = (CAPACITY, RESERVED, TRACKS)
    system = {key: value for key, value in machine.configuration["system"].items() if key not in omitted}
    return replace(
        machine,
        system=replace(machine.system, track_local_mem=False, local_memory=None),
        configuration={**machine.configuration, "system": system},
    )


def _retiming(machine: Machine) -> Machine:
    """Return the machine so that it also times recorded kernels."""
    if not machine.system.replay_recorded:
        raise UsageError(
            "--retime has no effect: this system does not keep the times of recorded kernels",
            remedy='leave it out; "replay-recorded-kernels" in the system file would keep them',
        )
    configuration = {**machine.configuration}
    configuration["system"] = {**configuration["system"], "replay-recorded-kernels": False}
    return replace(
        machine, system=replace(machine.system, replay_recorded=False), configuration=configuration
    )


def is_layer_file(workload: Any) -> bool:
    """Return whether a workload is given as a layer file."""
    if not isinstance(workload, str | Path) or not is_file(Path(workload)):
        return False
    from et_sim.layerfile import looks_like_layer_file

    return looks_like_layer_file(workload)


def is_several(workload: Given) -> bool:
    """Return whether several jobs are given, whatever the form."""
    if isinstance(workload, Workload):
        return bool(workload.jobs)
    return isinstance(workload, Mapping) or kind_of(Path(workload)) is FileKind.JOBS


def merged(
    workload: Given, npus: int | None, *, alone: bool, groups: object, is_open: bool
) -> SingleWorkload:
    """Merge several jobs (a file, or a mapping with its keys) into one workload; keep other workloads.

    `npus`: the machine's NPUs, if known; `is_open`: only the jobs may name a profile.
    """
    if isinstance(workload, Workload) or (not isinstance(workload, Mapping) and not is_several(workload)):
        return workload
    if alone:
        raise UsageError("--alone is about the ranks of one workload", remedy="give the prefix of a job")
    if groups is not None:
        raise UsageError(
            "--groups is about the ranks of one workload, and jobs have groups of their own",
            remedy='name the file in the job file, as "groups" of the job',
        )
    if npus is None:
        raise UsageError("jobs are placed on the NPUs of a machine", remedy="give --network, too")
    from et_sim.jobs import read_jobs

    return read_jobs(workload, npus, profile_is_open=is_open)


class Recorder(Struct, frozen=True):
    """Recordings of a run besides the times of its nodes."""

    causal_events: CausalEvents | None = None
    phases: Phases | None = None
    messages: MessageSpool | None = None
    links: bool = False
    ports: PortRecord | None = None  # packets at ports over time

    def run(
        self,
        plan: LoweredPlan,
        network: Network,
        model: NetworkModel,
        watch: Watcher,
        until_ns: int | None = None,
        kept: KeptStart | None = None,
        *,
        ties_alike: bool = False,
    ) -> Outcome | None:
        """Simulate a plan and record it; earlier recordings are dropped."""

        def begin() -> None:
            if self.messages is not None:
                self.messages.begin(plan.actor_of_rank)
            for spool in (self.causal_events, self.phases, self.ports):
                if spool is not None:
                    spool.clear()

        return run_plan(
            plan,
            network,
            model,
            None if isinstance(watch, NoWatcher) else watch.report,
            begin=begin,
            record=self.causal_events.add if self.causal_events else None,
            log=self.phases.add if self.phases else None,
            messages=self.messages.add if self.messages else None,
            links=self.links,
            until_ns=until_ns,
            kept=kept,
            ties_alike=ties_alike,
            ports=self.ports.add if self.ports else None,
        )


def simulated(plan: Plan, model: NetworkModel, watch: Watcher, recorder: Recorder) -> Outcome:
    """Simulate the actors of a plan, or every rank by itself if they do not behave like all ranks."""
    network = plan.lowering.machine.network_of(has_contention=model.HAS_CONTENTION)
    watch.stage(announced(packets_expected(model, network, plan.lowered)))
    outcome = recorder.run(plan.lowered, network, model, watch, kept=plan.start)
    if outcome is None and plan.ties_alike:
        noted = replace(plan.lowered, notices=(*plan.lowered.notices, TIES_ALIKE))
        outcome = recorder.run(noted, network, model, watch, ties_alike=True)
    is_stalled = outcome is not None and not outcome.is_complete
    if outcome is None or (plan.actors.is_folded and is_stalled and _can_tell_apart(plan.workload)):
        watch.stage(ALONE)
        unfolded = plan.unfolded((TIE,) if outcome is None else ())
        outcome = recorder.run(unfolded, network, model, watch)
    assert outcome is not None  # only a folded run is given up
    return outcome


def moves_needed(workload: Workload, lowering: Lowering, outcome: Outcome) -> Spilled | None:
    """Return the workload with moves to remote memory; None without spilling, or if memory suffices."""
    memory = lowering.machine.system.local_memory
    if memory is None or memory.when_full is not WhenFull.SPILL:
        return None
    from et_sim.plan.spilled import spilled
    from et_sim.timeline.out_of_memory import out_of_memory

    is_full = out_of_memory(outcome, lowering.workload, memory) is not None
    return spilled(workload, lowering, memory) if is_full else None


def simulated_in_memory(
    plan: Plan, model: NetworkModel, may_fold: bool, watch: Watcher, recorder: Recorder
) -> tuple[Lowering, Outcome, Spilled | None]:
    """Simulate; if memory gets full, simulate again with tensors in remote memory."""
    lowering, outcome = plan.lowering, simulated(plan, model, watch, recorder)
    moves = moves_needed(plan.workload, lowering, outcome)
    if moves is None:
        return lowering, outcome, None
    watch.stage("simulating again with tensors in remote memory")
    again = plan_of(moves.workload, lowering.machine, model, may_fold=may_fold, by_link=recorder.links)
    again = replace(again, ties_alike=plan.ties_alike)
    return again.lowering, simulated(again, model, watch, recorder), moves


class Carried(Struct, frozen=True, eq=False):
    """A simulation to the end, and whether memory was sufficient."""

    lowering: Lowering
    outcome: Outcome
    moves: Spilled | None
    full: OutOfMemory | None
    seconds: float  # of simulation in this process

    @property
    def is_stopped(self) -> bool:
        """Return whether the machine stops the run when memory is full."""
        return self.full is not None and self.full.stopped


def carry_out(
    task: Task, may_fold: bool, watch: Watcher, recorder: Recorder, planner: Planner | None = None
) -> Carried:
    """Simulate a task; refuse messages that do not match."""
    machine, model = task.machine, task.network_model()
    begin = time.perf_counter()
    watch.stage("planning")
    planner = planner or Planner()
    plan = planner.plan(task.workload, machine, model, may_fold=may_fold, by_link=recorder.links)
    plan = replace(plan, ties_alike=task.ties_alike)
    lowering, outcome, moves = simulated_in_memory(plan, model, may_fold, watch, recorder)
    if outcome.is_complete:  # a stall is explained better by its report
        refuse_mismatches(plan.mismatches)
    full = _out_of_memory(lowering, outcome, moves) if machine.system.local_memory else None
    return Carried(lowering, outcome, moves, full, time.perf_counter() - begin)


def _out_of_memory(lowering: Lowering, outcome: Outcome, moves: Spilled | None) -> OutOfMemory | None:
    from et_sim.timeline.out_of_memory import TooLarge, out_of_memory

    full = out_of_memory(outcome, lowering.workload, lowering.machine.system.local_memory)
    if full is not None and moves is not None and (node := moves.too_large_on(full.rank)):
        full = replace(full, too_large=TooLarge(*node))
    return full


def announced(packets: int) -> str:
    """Return the name of the stage, with the number of packets if there are any."""
    if packets == 0:
        return "simulating"
    seconds = packets / PACKETS_IN_A_SECOND
    if seconds < SECONDS_WORTH_SAYING:
        return f"simulating about {packets:,} packets"
    time = f"{seconds / 60:,.0f} min" if seconds < HOURS_FROM else f"{seconds / 3600:,.1f} hours"
    hint = "; --network-model flow takes less" if seconds >= HOURS_FROM else ""
    speed = f"{time} at half a million in a second, less if they repeat themselves"
    return f"simulating about {packets:,} packets ({speed}{hint})"


def _can_tell_apart(workload: Workload) -> bool:
    """Return whether a stalled run is small enough to repeat it unfolded for an explanation."""
    return workload.ranks <= MOST_RANKS_EXPLAINED


def unused_settings(machine: Machine) -> tuple[Notice, ...]:
    """Return notices of settings for layer files that have no effect on a run of traces."""
    default = LayerSettings()
    given = {
        "num-passes": machine.layers.passes != default.passes,
        "compute-scale": machine.layers.compute_scale != default.compute_scale,
        "comm-scale": machine.layers.comm_scale != default.comm_scale,
    }
    text = "no effect on traces, only on layer files"
    return tuple(Notice("", key, text) for key, is_given in given.items() if is_given)


def unused_compute_model(machine: Machine, lowering: Lowering) -> tuple[Notice, ...]:
    """Return a notice of a user's compute model that times no kernel of the run."""
    name, kernels = machine.system.compute[0].label, lowering.kernels
    if kernels is not None and name in kernels.used.timed_by.texts:
        return ()
    text = "it times no kernel of this workload (times of its function are NaN, or nodes are of the CPU)"
    return (Notice(name, "", text),)


def profile_facts(task: Task) -> dict[str, Any]:
    """Return the profile of a run, for its manifest."""
    behaviour = task.machine.system.behaviour
    return {
        "profile": behaviour.profile.value,
        "profile_named_by": task.profile_named_by.value,
        "corrections": sorted(behaviour.corrections),
        "switched": sorted(behaviour.switched),
    }


def is_worth_a_look(task: Task, outcome: Outcome) -> bool:
    """Return whether the corrected profile is of interest: no profile was chosen, or the run did not end."""
    is_reference = task.machine.system.behaviour.profile is Profile.REFERENCE
    return is_reference and (task.profile_named_by is NamedBy.NO_SOURCE or not outcome.is_complete)
