"""The one Python call: `simulate(workload, system=…, network=…)`, and what the command line shares with it.

Puts the rooms together in the order of the layer_file: trace, machine, plan, engine, timeline. Not here: any
work of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from inspect import Signature, signature
from pathlib import Path, PurePath
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from et_sim.engine.driver import Outcome, run_plan
from et_sim.engine.transport.network_seam import NetworkModel
from et_sim.errors import UsageError
from et_sim.fold import fold as fold_ranks
from et_sim.layer_file_run import LayerFileRun, is_layer_file, unused_settings
from et_sim.machine import Machine, Network, Notice, read_machine
from et_sim.machine.corrections import Correction
from et_sim.network.registry import check_model, model_named
from et_sim.plan.actors import Actors
from et_sim.plan.lowering import Lowering, assemble
from et_sim.plan.tables import Plan
from et_sim.run_options import MACHINE, RunOptions
from et_sim.timeline import CausalEvents, Messages, OutputFilter, Phases, Result
from et_sim.timeline.detail import LINKS, MESSAGES, PATH, PHASES, details_of
from et_sim.timeline.output_filter import EVERYTHING
from et_sim.trace import Workload, read_workload
from et_sim.trace.tensors import remark_on_unannotated
from et_sim.version import __version__

ALONE = "simulating every rank by itself"
MOST_RANKS_EXPLAINED = 65_536
Given = TypeVar("Given")
Fields = ParamSpec("Fields")


class Watcher(Protocol):
    """Is told how a run is getting on."""

    def stage(self, name: str) -> None:
        """Another part of the work begins."""

    def report(self, now_ns: int, messages: int, expected: int, nodes: int, all_nodes: int) -> None:
        """How far the simulation is."""


class _Nobody:
    """Watches nothing."""

    def stage(self, name: str) -> None: ...
    def report(self, now_ns: int, messages: int, expected: int, nodes: int, all_nodes: int) -> None: ...


def _with_keywords(
    options: Callable[Fields, RunOptions],
) -> Callable[[Callable[[Given, RunOptions], Result]], Callable[Concatenate[Given, Fields], Result]]:
    """Make a function of a workload and `RunOptions` one that takes the fields of these as keywords."""

    def decorate(call: Callable[[Given, RunOptions], Result]) -> Callable[Concatenate[Given, Fields], Result]:
        @wraps(call)
        def called(workload: Given, /, *args: Fields.args, **fields: Fields.kwargs) -> Result:
            return call(workload, options(*args, **fields))

        first = next(iter(signature(call).parameters.values()))
        shown = Signature([first, *signature(options).parameters.values()])
        called.__signature__ = shown  # type: ignore[attr-defined]
        return called

    return decorate


@_with_keywords(RunOptions)
def simulate(workload: str | Path | Workload, options: RunOptions) -> Result:
    """Simulate a workload on a machine.

    `workload` is a trace prefix or a `Workload`; the machine's parts are file paths, or dicts with the
    files' keys. `detail` says what else is recorded: "phases", "messages", "links" or "path", or several of
    them with commas between or in a list. Raises `StallError` if some rank cannot finish (its `report`
    explains why), and another `EtSimError` for input that cannot be used.
    """
    result = execute(workload, options)
    if not result.is_complete:
        from et_sim.engine.stall import explain_stall

        raise explain_stall(result.outcome, result.workload).as_error()
    return result


@_with_keywords(RunOptions)
def run(workload: str | Path | Workload, options: RunOptions) -> Result:
    """Like `simulate`, but a run in which ranks never finish is returned instead of raised."""
    return execute(workload, options)


def execute(
    workload: str | Path | Workload,
    options: RunOptions,
    *,
    watch: Watcher | None = None,
    output_filter: OutputFilter = EVERYTHING,
    change: Callable[[Machine], Machine] | None = None,
) -> Result:
    """Carry out a run; one in which ranks never finish is returned like any other.

    `output_filter` says which part of the run will be written: ranks that the run does not have are refused
    at once. `change` makes another machine of the one that was read.
    """
    command = _command(workload, options)
    watch = watch or _Nobody()
    check_model(options.model)
    details = details_of(options.detail)
    if not isinstance(workload, str | Path | Workload):
        raise UsageError(
            f"a workload cannot be a {type(workload).__name__}",
            remedy="give the prefix of trace files, or an et_sim.Workload",
        )
    watch.stage("reading machine and traces")
    given = {name: getattr(options, name) for name in MACHINE}
    machine = read_machine(**given, profile=options.profile)
    machine = change(machine) if change else machine
    chosen = model_named(options.model)
    chosen.check(machine.network)
    layer_file = (
        LayerFileRun(workload, machine)
        if not isinstance(workload, Workload) and is_layer_file(workload)
        else None
    )
    if layer_file is not None:
        workload, machine = layer_file.workload, layer_file.machine
    elif not isinstance(workload, Workload):
        workload = read_workload(workload, machine.network.ranks)
    output_filter.check_ranks(workload.ranks)
    watch.stage("planning")
    lowering = Lowering(workload, machine)
    kept = _Kept(
        causal_events=CausalEvents() if PATH in details else None,
        phases=Phases() if PHASES in details or layer_file is not None else None,
        messages=Messages(output_filter) if MESSAGES in details else None,
        links=LINKS in details,
    )
    outcome = _simulated(lowering, chosen, options.fold, watch, kept)
    notices = (
        outcome.plan.notices if layer_file is not None else (*outcome.plan.notices, *unused_settings(machine))
    )
    manifest = make_manifest(workload, machine, options.model, notices)
    manifest["detail"] = list(details if layer_file is None else details_of((*details, PHASES)))
    layers = (
        layer_file.figures(outcome, kept.phases)
        if layer_file and kept.phases and outcome.is_complete
        else None
    )
    return Result(
        outcome, lowering.workload, manifest, command, kept.causal_events, kept.phases, layers, kept.messages
    )


def _command(workload: Any, options: RunOptions) -> dict[str, Any] | None:
    """What was simulated, and how, if all of it is in files."""
    given = {"workload": workload} | {name: getattr(options, name) for name in MACHINE}
    files = {name: path for name, path in given.items() if path is not None}
    if not all(isinstance(path, str | Path) for path in files.values()):
        return None
    where = {name: str(Path(path).resolve()) for name, path in files.items()}
    return {"files": where, "profile": options.profile, "fold": options.fold}


@dataclass(frozen=True, slots=True)
class _Kept:
    """What is kept of a run besides the times of its nodes."""

    causal_events: CausalEvents | None
    phases: Phases | None
    messages: Messages | None
    links: bool

    def run(self, plan: Plan, network: Network, model: NetworkModel, watch: Watcher) -> Outcome | None:
        """Simulate a plan, and keep that; whatever was kept before is forgotten."""
        if self.messages is not None:
            self.messages.begin(plan.actor_of_rank)
        for spool in (self.causal_events, self.phases):
            if spool is not None:
                spool.clear()
        return run_plan(
            plan,
            network,
            model,
            watch.report,
            record=self.causal_events.add if self.causal_events else None,
            log=self.phases.add if self.phases else None,
            messages=self.messages.add if self.messages else None,
            links=self.links,
        )


def _simulated(
    lowering: Lowering, model: NetworkModel, may_fold: bool, watch: Watcher, kept: _Kept
) -> Outcome:
    """Run as few actors as behave like all ranks, and every rank by itself where that is not possible."""
    workload, machine = lowering.workload, lowering.machine
    alone = Actors.one_per_rank(workload.ranks)
    whole = machine.system.behaviour.corrects(Correction.WHOLE_PATH)
    actors = fold_ranks(lowering, model.path_keys(machine.network, whole=whole)) if may_fold else alone
    if lowering.start_together and len(actors) > 1:
        actors = alone  # who starts together must not be told apart by the watch for ties
    network = machine.network_of(has_contention=model.HAS_CONTENTION)
    watch.stage("simulating")
    outcome = kept.run(assemble(lowering, actors), network, model, watch)
    if outcome is None or (actors.is_folded and not outcome.is_complete and _can_tell_apart(workload)):
        watch.stage(ALONE)
        outcome = kept.run(assemble(lowering, alone), network, model, watch)
    assert outcome is not None  # only a folded run is given up
    return outcome


def _can_tell_apart(workload: Workload) -> bool:
    """Whether a stalled run is small enough to repeat it rank by rank, so that it can be explained."""
    return workload.ranks <= MOST_RANKS_EXPLAINED


def make_manifest(
    workload: Workload, machine: Machine, model: str, of_plan: tuple[Notice, ...]
) -> dict[str, Any]:
    """What went into a run: enough to repeat it, and nothing that depends on the host."""
    texts = [("", text) for text in workload.notices]
    if machine.system.track_local_mem and (remark := remark_on_unannotated(workload)):
        texts.append(("track-local-mem", remark))
    notices = [{"place": _base(workload.source), "key": key, "text": text} for key, text in texts]
    return {
        "et_sim": __version__,
        "model": model,
        "profile": machine.system.behaviour.profile.value,
        "corrections": sorted(machine.system.behaviour.corrections),
        "switched": sorted(machine.system.behaviour.switched),
        "ranks": workload.ranks,
        "uneven": {"ranks": machine.straggling_ranks, "links": len(machine.network.links)},
        "distinct_traces": len(workload.templates),
        "inputs": [
            {"file": _base(path), "sha256": digest} for path, digest in (*machine.inputs, *workload.inputs)
        ],
        "warnings": notices + [_as_dict(notice) for notice in (*machine.warnings, *of_plan)],
        "defaults": [_as_dict(notice) for notice in machine.defaults],
    }


def _as_dict(notice: Any) -> dict[str, str]:
    return {"place": _base(notice.place), "key": notice.key, "text": notice.text}


def _base(path: str) -> str:
    """A file's own name: where it lies is the host's affair."""
    return PurePath(path).name
