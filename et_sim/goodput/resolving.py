"""A job in numbers: the setting of its months, from its file and its step."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from et_sim.documents.keys import Section
from et_sim.goodput.formulas import best_interval
from et_sim.goodput.job_file import (
    ASYNCHRONOUS,
    CORRUPTS,
    ENDS,
    HALVES,
    SLOWS,
    CheckpointSpec,
    JobSpec,
    PartSpec,
)
from et_sim.goodput.presets import DAY, PRESETS
from et_sim.goodput.setting import Cycle, JobStep, Part, Recovery, Setting

REPAIR = 24 * 3600.0  # of a node; an assumption
CORRUPTION_LAG = 3600.0  # until wrong values are noticed; an assumption
SHORTEST_INTERVALS = 1  # steps


class Resolved(Struct, frozen=True):
    """A job in numbers, with facts about it for the summary."""

    checkpoints: CheckpointSpec
    setting: Setting
    write_seconds: float
    least_write: float  # that the network takes, however fast the storage is
    bytes: int | None
    interval_is_given: bool


def resolve(job: JobSpec, step: JobStep, place: Section) -> Resolved:
    """Return the setting of a job."""
    parts = _parts(job, step, place)
    job = _with_stall(job, step)
    size = job.checkpoints.size(step.bytes)
    least = (size or 0) / step.gpus / step.port
    write = _write_seconds(job.checkpoints, size, max(least, step.write), place)
    load = job.recovery.load
    memory = job.checkpoints.memory
    recovery = Recovery(
        drain=job.recovery.drain,
        schedule=job.recovery.schedule,
        cold=job.recovery.cold,
        start=job.recovery.start,
        load=write if load is None else load,
        memory_load=0.0 if memory is None else memory.load,
        warm_up=job.recovery.warm_up,
        write=write,
    )
    early = job.failures.early
    every, maintenance = _planned(job)
    setting = Setting(
        step=step.seconds,
        parts=parts,
        cycle=Cycle(1),
        recovery=recovery,
        fewer=step.fewer,
        half_link_step=step.half_link,
        early_factor=1.0 if early is None else early.factor,
        early_decay=1.0 if early is None else early.decay,
        hot=job.spares.hot,
        cold=job.spares.cold,
        every=every,
        maintenance=maintenance,
        nodes=step.nodes,
    )
    interval = job.checkpoints.interval
    first = first_interval(setting, job.checkpoints, write) if interval is None else interval
    first_setting = with_interval(setting, job.checkpoints, write, first)
    return Resolved(job.checkpoints, first_setting, write, least, size, interval is not None)


def _with_stall(job: JobSpec, step: JobStep) -> JobSpec:
    """Return the job with the times by which copies in memory and writes to storage lengthen steps."""
    checkpoints = job.checkpoints
    if checkpoints.stall is None and step.write_stall is not None:
        checkpoints = replace(checkpoints, stall=step.write_stall)
    if checkpoints.memory is not None and checkpoints.memory.stall is None:
        checkpoints = replace(checkpoints, memory=replace(checkpoints.memory, stall=step.copy_stall))
    return replace(job, checkpoints=checkpoints)


def _parts(job: JobSpec, step: JobStep, place: Section) -> tuple[Part, ...]:
    """Return the parts that fail; refuse those without a rate."""
    for spec in parts_of(job):
        if spec.rate is None:
            raise place.fault(
                f'the part "{spec.name}" has no rate', 'give "per-1000-node-days"', key="failures"
            )
    return tuple(_part(spec, job, step) for spec in parts_of(job) if spec.rate)


def parts_of(job: JobSpec) -> tuple[PartSpec, ...]:
    """Return the parts of the preset, with changes, and further ones."""
    known, given = _known_parts(job), {part.name: part for part in job.failures.parts}
    return tuple({**known, **{name: _merged(known.get(name), spec) for name, spec in given.items()}}.values())


def with_interval(setting: Setting, spec: CheckpointSpec, write: float, interval: float) -> Setting:
    """Return the setting with another interval between checkpoints in storage, in whole steps."""
    is_asynchronous = spec.how == ASYNCHRONOUS
    stall = spec.stall if spec.stall is not None else (0.0 if is_asynchronous else write)
    lag = write if is_asynchronous else 0.0
    memory = spec.memory
    if is_asynchronous:  # one checkpoint is written at a time
        interval = max(interval, write)
    steps = _whole_steps(interval, setting.step)
    if memory is None:
        return replace(setting, cycle=Cycle(steps, storage_stall=stall, lag=lag))
    inner = min(_whole_steps(memory.interval, setting.step), steps)
    copies = max(round(steps / inner), 1)
    assert memory.stall is not None  # of a resolved job
    cycle = Cycle(inner, copies, memory.stall, stall, lag, survives=memory.copies - 1)
    return replace(setting, cycle=cycle)


def _whole_steps(seconds: float, step: float) -> int:
    return max(round(seconds / step), SHORTEST_INTERVALS)


def first_interval(setting: Setting, spec: CheckpointSpec, write: float) -> float:
    """Return the best interval to first order; a day without failures."""
    stall = write if spec.stall is None else spec.stall
    rate = setting.rate
    return best_interval(rate, max(stall, setting.step / 100)) if rate else DAY


def _planned(job: JobSpec) -> tuple[float, float]:
    """Return the time between planned interruptions, and the length of each."""
    if job.maintenance is not None:
        return job.maintenance.every, job.maintenance.duration
    known = PRESETS[job.failures.preset] if job.failures.preset else None
    return (known.days * DAY / known.planned, 0.0) if known is not None and known.planned else (0.0, 0.0)


def _known_parts(job: JobSpec) -> dict[str, PartSpec]:
    """Return the parts of the preset."""
    if job.failures.preset is None:
        return {}
    known = PRESETS[job.failures.preset]
    return {
        part.name: PartSpec(part.name, known.rate(part), part.nodes, effect=part.effect, is_link=part.is_link)
        for part in known.parts
    }


def _merged(known: PartSpec | None, given: PartSpec) -> PartSpec:
    """Return a part of a preset with the keys that are given."""
    if known is None:
        return given
    names = PartSpec.__struct_fields__
    values = {name: getattr(known if getattr(given, name) is None else given, name) for name in names}
    return PartSpec(**values)


def _part(spec: PartSpec, job: JobSpec, step: JobStep) -> Part:
    """Return a part with the rate of the whole job, and defaults."""
    effect = spec.effect or ENDS
    detection = CORRUPTION_LAG if effect in (SLOWS, CORRUPTS) else job.recovery.detection
    return Part(
        spec.name,
        (spec.rate or 0.0) * step.nodes / 1000 / DAY,
        nodes=1 if spec.nodes is None else spec.nodes,
        detection=detection if spec.detection is None else spec.detection,
        repair=REPAIR if spec.repair is None else spec.repair,
        slow_step={SLOWS: step.slow, HALVES: step.half_link}.get(effect, 0.0),
        corrupts=effect == CORRUPTS,
        is_link=bool(spec.is_link),
    )


def _write_seconds(spec: CheckpointSpec, size: int | None, least: float, place: Section) -> float:
    """Return the time to write a checkpoint: that of the storage, but at least that of the network."""
    if size is not None:
        return max(size / (spec.storage * 1e9), least)
    if spec.stall is None:
        raise place.fault(
            "the size of a checkpoint is not known",
            'give "bytes" (et-sim plan shows weights and optimizer states), or "stall"',
            key="checkpoints",
        )
    return spec.stall
