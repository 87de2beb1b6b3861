"""Description of a long job: a YAML file, read strictly; times are in seconds, or have a unit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from et_sim.basics.errors import InputError, UsageError, unreadable
from et_sim.documents.keys import Remarks, Section, Slot, ValueKind, key, read
from et_sim.documents.kinds import (
    BANDWIDTH_WITH_UNIT,
    SIZE,
    choice,
    count,
    flag,
    number,
    of_type,
    section,
    sections,
    text,
)
from et_sim.goodput.presets import PRESETS
from et_sim.machine.texts import parse_yaml

_SECONDS = {"s": 1.0, "ms": 1e-3, "min": 60.0, "h": 3600.0, "d": 86400.0}
_SPAN = re.compile(r"\s*(\d+(?:\.\d*)?(?:[eE][+-]?\d{1,2})?|\.\d+)\s*([a-z]+)\s*", re.ASCII)
LONGEST = 1e10
ENDS, SLOWS, HALVES, CORRUPTS = "stops", "slows", "halves-link", "corrupts"
SYNCHRONOUS, ASYNCHRONOUS = "synchronous", "asynchronous"


def seconds_of(value: Any) -> float | None:
    """Return a time span in seconds; None if it is none."""
    if isinstance(value, str):
        match = _SPAN.fullmatch(value) if len(value) < 40 else None
        if match is None or match[2] not in _SECONDS:
            return None
        value = float(match[1]) * _SECONDS[match[2]]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value <= LONGEST else None


def _span(slot: Slot, value: Any) -> float:
    seconds = seconds_of(value)
    if seconds is None or (slot.key.above_minimum and not seconds):
        raise slot.refusal(value)
    return seconds


def _span_forms(described: Any) -> str:
    more = " more than 0" if described.above_minimum else ""
    return f'a time{more} in seconds, or with a unit: "30s", "10min", "3h", "54d"'


SPAN = ValueKind("time span", _span_forms, _span)
RECIPE = of_type("recipe", 'an object with its keys; a run of files is named by "run"', dict)
span = partial(key, SPAN, unit="s")


class PartSpec(Struct, frozen=True):
    """A kind of part that fails."""

    name: str = text(
        "Name of the kind of part, such as `gpu`; one of the preset's is changed.", required=True
    )
    rate: float | None = number(
        "Failures for 1,000 node-days. 0 leaves the part out.", None, maximum=1e6, name="per-1000-node-days"
    )
    nodes: int | None = count(
        "Nodes that a failure takes away until they are repaired: 0 for software, 1 for a part of a node, "
        "the nodes of a rack for its power or switch.",
        None,
        maximum=1024,
    )
    detection: float | None = span("Time until the failure is noticed.", None)
    repair: float | None = span("Time until the nodes are usable again.", None)
    effect: str | None = choice(
        "The effect: the step stops; the kernels of a node, or a GPU's link between nodes (by half), are "
        "slower until the node is replaced after `detection`; or it computes wrong values until `detection`, "
        "and goes back to a checkpoint from before.",
        None,
        choices=(ENDS, SLOWS, HALVES, CORRUPTS),
    )
    is_link: bool | None = flag(
        "On: a second port for each GPU would leave half of its bandwidth after a failure.",
        None,
        name="link",
    )


class EarlySpec(Struct, frozen=True):
    """Additional failures of a young machine."""

    factor: float = number(
        "The rate at the beginning, as a multiple of the later rate.", required=True, minimum=1
    )
    decay: float = span("Time in which the excess falls to 1/e.", required=True, above_minimum=True)


class FailuresSpec(Struct, frozen=True):
    """Rates of failures."""

    preset: str | None = choice("Rates of a published job or cluster.", None, choices=tuple(PRESETS))
    parts: tuple[PartSpec, ...] = sections("Kinds of parts.", (), of=PartSpec, may_be_empty=True)
    early: EarlySpec | None = section("Infant mortality. Without the key: none.", None, of=EarlySpec)
    slower: float = number("Factor of the time of kernels of a slow node.", 1.5, stated=True, minimum=1)


class RecoverySpec(Struct, frozen=True):
    """The times of a restart, in their order; each is an assumption where it has no source."""

    detection: float = span(
        "Time until a failure is noticed, of parts without their own.",
        34.4,
        stated="34.4s",
        default_reason="NCCL 2.30.7: 8 time-outs of 4.3 s",
    )
    drain: float = span(
        "Time to find the part and to stop what is left of the job.",
        600.0,
        stated="10min",
        default_reason="MegaScale, NSDI 2024, recalled: less than 10 minutes",
    )
    schedule: float = span(
        "Time to put the job on its nodes again, with a hot spare.",
        0.0,
        stated="0s",
        default_reason="assumption",
    )
    cold: float = span(
        "Time to prepare a cold spare.",
        1800.0,
        name="cold-spare",
        stated="30min",
        default_reason="assumption",
    )
    start: float = span(
        "Time to start processes and groups.",
        30.0,
        stated="30s",
        default_reason="MegaScale, recalled: less than 30 s for 10,000 GPUs",
    )
    load: float | None = span(
        "Time to load a checkpoint; without the key: its bytes by the bandwidth of the storage.", None
    )
    warm_up: float = span(
        "Time in excess of normal steps until steps take their normal time.",
        0.0,
        stated="0s",
        default_reason="assumption",
    )


class MemorySpec(Struct, frozen=True):
    """Checkpoints in the memory of peers."""

    interval: float = span("Time of steps from one to the next.", required=True, above_minimum=True)
    stall: float | None = span(
        "Time by which they lengthen a step; without the key: that of a simulated step beside which they go "
        "to other nodes, with `run`, `workload` or `machine`, else 0.",
        None,
    )
    load: float = span("Time to load them.", 0.0)
    copies: int = count(
        "Copies of each part, on its own and on other nodes; as many lost nodes at a time may lose all of "
        "them.",
        2,
        minimum=1,
    )


class CheckpointSpec(Struct, frozen=True):
    """Checkpoints."""

    interval: float | None = span(
        "Time of steps from one to the next; without the key: the best of several is taken.",
        None,
        above_minimum=True,
    )
    how: str = choice(
        "Steps wait until a checkpoint is written (synchronous), or go on (asynchronous).",
        SYNCHRONOUS,
        choices=(SYNCHRONOUS, ASYNCHRONOUS),
    )
    bytes: int | None = key(
        SIZE,
        "Size of a checkpoint; without the key: weights and optimizer states of the plan.",
        None,
        unit="bytes",
    )
    storage: float = key(
        BANDWIDTH_WITH_UNIT,
        "Bandwidth of the storage, for all ranks together.",
        2000.0,
        stated="2TB/s",
        default_reason="that of Llama 3's",
    )
    stall: float | None = span(
        "Time for which steps stand still; without the key: the time to write if synchronous, else that by "
        "which writes beside simulated steps lengthen them, with `run` or `workload`, else 0.",
        None,
    )
    memory: MemorySpec | None = section(
        "Copies in the memory of peers. Without the key: none.", None, of=MemorySpec
    )

    def size(self, of_plan: int | None) -> int | None:
        """Return the bytes of a checkpoint: as the file states them, or else those of the plan."""
        return of_plan if self.bytes is None else self.bytes


class SparesSpec(Struct, frozen=True):
    """Nodes beyond those of the job."""

    hot: int = count("Spare nodes that are ready.", 0, stated=True, maximum=4096)
    cold: int = count("Spare nodes that must be prepared.", 0, stated=True, maximum=4096)


class MaintenanceSpec(Struct, frozen=True):
    """Planned interruptions, which a checkpoint precedes."""

    every: float = span("Time from one to the next.", required=True, above_minimum=True)
    duration: float = span("Length of each.", 0.0, name="for")


class JobSpec(Struct, frozen=True):
    """The whole file."""

    run: str | None = text("The directory of a run of the step, from et-sim run.", None)
    workload: dict[str, Any] | None = key(
        RECIPE, "A recipe of the step's workload, as of sweeps, which is simulated.", None
    )
    machine: str | None = text(
        "The machine of the workload, or of a given step, by its name; checkpoints then cross its network.",
        None,
    )
    when_full: str | None = text("The treatment of a step that needs more memory than there is.", None)
    step: float | None = span("Time of a step, in place of a simulated one.", None, above_minimum=True)
    tokens_of_step: int | None = count("Tokens of a step, with `step`.", None, minimum=1, needs="step")
    gpus: int | None = count("GPUs of the job, with `step`.", None, minimum=1, needs="step")
    gpus_of_node: int | None = count(
        "GPUs of a node; without the key: those of the machine, or 8.", None, minimum=1
    )
    tokens: float | None = number(
        "Tokens of the whole job, for the days until it finishes.", None, above_minimum=True
    )
    price: float | None = number(
        "The price of a GPU for an hour; without the key: that of the machine.",
        None,
        name="price-per-gpu-hour",
    )
    failures: FailuresSpec = section("Failures.", FailuresSpec(), of=FailuresSpec)
    recovery: RecoverySpec = section("The times of a restart.", RecoverySpec(), of=RecoverySpec)
    checkpoints: CheckpointSpec = section("Checkpoints.", CheckpointSpec(), of=CheckpointSpec)
    spares: SparesSpec = section("Spare nodes.", SparesSpec(), of=SparesSpec)
    elastic: int = count(
        "Replicas that may be missing while the others go on; a failed node takes all of its own with it.",
        0,
        stated=True,
        maximum=64,
    )
    maintenance: MaintenanceSpec | None = section(
        "Planned maintenance; without the key: the preset's.", None, of=MaintenanceSpec
    )

    def check(self, given: Mapping[str, Any], place: Section, _: Remarks) -> None:
        """Refuse a file that names no step, or several."""
        named = [name for name in ("run", "workload", "step") if name in given]
        if len(named) != 1:
            cause = f"names {' and '.join(named)}" if named else "names no step"
            raise place.fault(f"the job {cause}", 'give one of "run", "workload" (with "machine") and "step"')
        if "workload" in given and "machine" not in given:
            raise place.fault('"workload" without "machine"', 'give both, or a "run"', key="workload")
        if "machine" in given and "run" in given:
            raise place.fault('"machine" beside "run", which has its own', "leave it out", key="machine")
        if "when-full" in given and "workload" not in given:
            cause = '"when-full" has no effect without "workload"'
            raise place.fault(cause, "leave it out", key="when-full")
        if "step" in given and not {"tokens-of-step", "gpus"} <= given.keys():
            raise place.fault('"step" without "tokens-of-step" or "gpus"', "give all three", key="step")


def read_job(path: Path) -> tuple[JobSpec, Section, Remarks]:
    """Return the job of a file, its section, and remarks on it."""
    return read_spec(content_of(path), str(path))


def content_of(path: Path) -> dict[str, Any]:
    """Return the keys of a file, unchecked."""
    try:
        content = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else unreadable(error)
        raise UsageError(
            f"the job cannot be read: {reason}", place=str(path), remedy="name a YAML file that describes it"
        ) from None
    parsed = parse_yaml(content, str(path))
    if not isinstance(parsed, dict):
        raise InputError(
            "is no description of a job", place=str(path), remedy='give it the keys "run" and "failures"'
        )
    return parsed


def read_spec(content: dict[str, Any], place: str = "<job>") -> tuple[JobSpec, Section, Remarks]:
    """Return the job of a dict with the keys of a file, its section, and remarks on it."""
    whole, remarks = Section(place, content, error_type=InputError).lined, Remarks()
    return read(JobSpec, whole, remarks), whole, remarks
