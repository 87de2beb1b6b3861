"""Data of a finished run, from which its tables and its summary are made.

Energy and price are the rates of NPUs times the duration. Times are first summed as whole nanoseconds over
all ranks, so that folding changes no digit. `et_sim.machine.system` states the rates, `power` sums those of
kernels.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
from msgspec import Struct

from et_sim.basics.lazy_names import late_hints
from et_sim.basics.unique import groups_of
from et_sim.basics.units import NS_PER_SECOND, format_ranks
from et_sim.engine.outcome import Outcome, Ports
from et_sim.machine.accuracy import Accuracy
from et_sim.machine.datatypes import ANY
from et_sim.plan.records import LoweredPlan
from et_sim.timeline.content import Nullable, rows_of
from et_sim.timeline.explained import explained
from et_sim.timeline.measurement import Measurement
from et_sim.timeline.network_load import bottleneck
from et_sim.timeline.power import as_written
from et_sim.timeline.scope import scope
from et_sim.timeline.statistics import Statistics
from et_sim.timeline.waiting.arrivals import slowest, waited_for_most
from et_sim.trace.workload import Step, Workload

if TYPE_CHECKING:
    from fractions import Fraction

    from et_sim.plan.spilled import Moved
    from et_sim.tables.summary import Manifest, Summary, Throughput
    from et_sim.timeline.layers import LayerRun
    from et_sim.timeline.out_of_memory import OutOfMemory
    from et_sim.timeline.spool import CausalEvents, MessageSpool, Phases, PortRecord


def figures_of_ranks(measurement: Measurement) -> dict[str, Any]:
    """Return the entries in order of their first rank, and the entry that is waited for most."""
    columns = measurement.statistics.columns()
    entry, actor = _entries(measurement, columns)
    of_rank = entry[measurement.actor_of_rank]
    counts = np.bincount(of_rank, minlength=len(actor))
    members = np.split(np.argsort(of_rank, kind="stable"), np.cumsum(counts)[:-1])
    names = [format_ranks(ranks) for ranks in members]
    waits = measurement.source.waits.by_class(entry, measurement.ranks_per_actor)
    figures = zip(*(rows_of(column, actor).tolist() for column in columns.values()), strict=True)
    awaited = [None if most is None else names[most] for most in waited_for_most(waits, len(names))]
    per_rank: list[dict[str, Any]] = [
        {"ranks": name, **dict(zip(columns, given, strict=True)), "waits_for": most}
        for name, given, most in zip(names, figures, awaited, strict=True)
    ]
    at_work = np.bincount(of_rank[measurement.has_work], minlength=len(actor))
    slowest_rank = slowest(waits, [figures["waiting_ns"] for figures in per_rank], at_work.tolist())
    return {
        "slowest": slowest_rank and {"ranks": names[slowest_rank.place], "cost_ns": slowest_rank.cost_ns},
        "per_rank": per_rank,
    }


def _entries(measurement: Measurement, columns: dict[str, Nullable]) -> tuple[Any, Any]:
    """Return the entry of every actor, numbered by lowest rank, and an actor of every entry."""
    bits = [column.values.view(np.uint64) for column in columns.values()]
    alike = groups_of(*bits)
    actor, entry, ranks = alike.first, alike.of_row, measurement.actor_of_rank
    lowest = np.full(len(actor), len(ranks))
    np.minimum.at(lowest, entry[ranks], np.arange(len(ranks)))
    order = np.argsort(lowest)
    return np.argsort(order)[entry], actor[order]


def packets(ports: Ports | None) -> dict[str, Any] | None:
    """Return the summary of packets."""
    if ports is None:
        return None
    totals: dict[str, Any] = dict(ports.totals)
    for name, column in (("lost_at", "lost"), ("paused_at", "pauses")):
        most = int(np.argmax(ports.columns[column]))
        is_any = ports.columns[column][most] > 0
        totals[name] = ports.resources.port_names[ports.resources.port[most]] if is_any else None
    return totals


OF_PROFILE = ("profile", "profile_named_by", "corrections", "switched", "other_profile")
SECONDS_PER_HOUR = 3600
DIGITS, RATE_DIGITS = 12, 9
MILLION = 1_000_000


def costs(rates: dict[str, Any] | None, measurement: Measurement, makespan_ns: int) -> dict[str, Any] | None:
    """Return energy and price of all ranks until the last one finishes; None without stated rates."""
    if rates is None:
        return None
    per_actor = zip(measurement.statistics.compute_ns, measurement.ranks_per_actor, strict=True)
    computing_ns = sum(int(time) * int(ranks) for time, ranks in per_actor)
    all_ns = makespan_ns * len(measurement.actor_of_rank)
    joules: dict[str, Any] = {"computing_joules": None, "not_computing_joules": None, "network_joules": None}
    if rates["busy_watts"] is not None:
        joules["computing_joules"] = measurement.power.computing_joules(
            measurement.ranks_per_actor, computing_ns, rates
        )
        joules["not_computing_joules"] = _seconds(all_ns - computing_ns, rates["idle_watts"])
        joules["network_joules"] = _seconds(all_ns, rates["network_watts"])
    parts = [value for value in joules.values() if value is not None]
    hourly = rates["price_per_hour"]
    price = None if hourly is None else _seconds(all_ns, hourly) / SECONDS_PER_HOUR
    return {
        **{name: _rounded(value) for name, value in joules.items()},
        "joules": _rounded(sum(parts)) if parts else None,
        "price": _rounded(price),
        "currency": rates["currency"],
    }


def _seconds(time_ns: int, rate: float) -> Fraction:
    return as_written(rate) * time_ns / NS_PER_SECOND


def _rounded(value: Fraction | None) -> float | None:
    return None if value is None else float(f"{float(value):.{DIGITS}g}")


def throughput(
    step: Step | None,
    peaks: Mapping[str, float],
    ranks: int,
    makespan_ns: int,
    taken: Mapping[str, Any] | None,
) -> Throughput | None:
    """Return the figures of a run of one step; None without a step, or if no time passed.

    `peaks` are those of a rank's device, in 10^12 operations per second; `taken` are the costs of the run.
    """
    if step is None or not makespan_ns:
        return None
    peak = peaks.get(step.datatype, peaks.get(ANY))
    model, hardware, unmasked = (
        None if operations is None else operations / makespan_ns / ranks / 1000  # 10^12 per second
        for operations in (step.model_operations, step.hardware_operations, step.unmasked_operations)
    )
    figures: dict[str, Any] = {
        "tokens": step.tokens,
        "datatype": step.datatype,
        "peak_tflops": peak,
        "tokens_per_s": step.tokens * 1e9 / makespan_ns,
        "tokens_per_s_per_rank": step.tokens * 1e9 / makespan_ns / ranks,
        "tflops_per_rank": model,
        "mfu": None if model is None or peak is None else model / peak,
        "hfu": None if hardware is None or peak is None else hardware / peak,
        "mfu_unmasked": None if unmasked is None or peak is None else unmasked / peak,
    }
    for name in ("price", "joules"):
        value = None if taken is None else taken[name]
        figures[f"{name}_per_million_tokens"] = None if value is None else value * MILLION / step.tokens
    rounded = {
        name: float(f"{v:.{RATE_DIGITS}g}") if isinstance(v, float) else v for name, v in figures.items()
    }
    return cast("Throughput", rounded)


def _accuracy_of(_: LoweredPlan, stated: Mapping[str, Any]) -> Accuracy:
    return Accuracy.from_dict(stated)


class SampledSteps(Protocol):
    """Samples of the step of a run."""

    @property
    def step_ns(self) -> Any:
        """Return the time of the step in each sample (int64)."""
        ...

    def columns(self) -> dict[str, Any]:
        """Return the columns of samples.arrow."""
        ...

    def summary(self) -> dict[str, Any]:
        """Return their figures."""
        ...


@late_hints
class RecordedRun(Struct, eq=False, dict=True):
    """Outcome of a run, its inputs, and its records."""

    outcome: Outcome
    workload: Workload
    manifest: Manifest
    command: dict[str, Any] | None = None  # inputs of the run, if all of them are files
    causal_events: CausalEvents | None = None  # causes of events, if recorded
    phases: Phases | None = None  # chunks of collectives, if logged
    layers: LayerRun | None = None  # results of a layer file
    messages: MessageSpool | None = None  # all messages, if logged
    ports: PortRecord | None = None  # pauses, and messages of packets, if ports were recorded
    out_of_memory: OutOfMemory | None = None  # the first time at which local memory did not suffice
    until_end: Outcome | None = None  # the continuation of a stopped run
    moved: Moved | None = None  # bytes to and from remote memory, where local memory may spill
    capacity_bytes: int | None = None  # of local memory, if known
    samples: SampledSteps | None = None  # of its step, if it was simulated with variation, too

    @cached_property
    def measurement(self) -> Measurement:
        """Return the rows of the timeline, and their sums."""
        stated = self.manifest.get("accuracy") if self.is_complete else None
        accuracy = None if stated is None else self.outcome.plan.derived(_accuracy_of, stated)
        return Measurement(self.outcome, self.workload, self.until_end, accuracy)

    @property
    def manifest_text(self) -> str:
        """Return the manifest as canonical JSON, without the configuration, which may list many links."""
        content = {key: value for key, value in self.manifest.items() if key != "configuration"}
        return json.dumps(content, sort_keys=True)

    @property
    def is_complete(self) -> bool:
        """Return whether every rank finished, and the run was not stopped just then."""
        return self.outcome.is_complete and not self.is_stopped

    @property
    def makespan_ns(self) -> int:
        """Return when the last rank finished; for an incomplete run, the time of its last event."""
        return int(self.outcome.finish_ns.max()) if self.is_complete else self.outcome.end_ns

    @property
    def statistics(self) -> Statistics:
        """Return all figures, per actor."""
        return self.measurement.statistics

    @cached_property
    def explained(self) -> dict[str, Any] | None:
        """Return the explained part of the longest path; None where recordings have no gaps."""
        return explained(self.outcome, self.workload, self.measurement.source.waits)

    @cached_property
    def costs(self) -> dict[str, Any] | None:
        """Return energy and price of the run; None where the machine states no rates."""
        return costs(self.manifest["costs"], self.measurement, self.makespan_ns)

    @property
    def power(self) -> dict[str, Any] | None:
        """Return the caps on devices, and their clocks; None where no device has one."""
        caps = self.manifest.get("power_caps")
        return self.measurement.power.summary(self.measurement.ranks_per_actor, caps) if caps else None

    @property
    def uncertainty(self) -> dict[str, Any] | None:
        """Return the band of the makespan, and its basis; None where the machine states no accuracy."""
        composition = self.measurement.composition
        return None if composition is None else composition.summary(self.makespan_ns)

    @cached_property
    def throughput(self) -> Throughput | None:
        """Return tokens per second, MFU and so on; None if the workload states no step."""
        if not self.is_complete:
            return None
        peaks, ranks = self.manifest["peak_tflops"], self.workload.ranks
        return throughput(self.workload.step, peaks, ranks, self.makespan_ns, self.costs)

    @property
    def coverage(self) -> dict[str, Any]:
        """Return the parts of the run that were modelled, replayed, defaulted, instant or not executed."""
        return self.measurement.coverage

    @property
    def status(self) -> str:
        """Return whether all ranks finished, or why not."""
        if self.is_complete:
            return "complete"
        return "out of memory" if self.is_stopped else "stalled"

    @property
    def is_stopped(self) -> bool:
        """Return whether the run was stopped because memory was full."""
        return self.until_end is not None

    def _folded(self) -> dict[str, Any]:
        limits = [{"reason": limit.reason, "remedy": limit.remedy} for limit in self.outcome.plan.limits]
        return {
            "actors": self.measurement.source.actors,
            "ranks": self.workload.ranks,
            **({"limits": limits} if limits else {}),
        }

    def _deadlocks(self) -> dict[str, Any]:
        if not self.outcome.blocked:
            return {}
        from et_sim.timeline.deadlocks import deadlocks

        found = deadlocks(self.outcome, self.workload)
        return {"deadlocks": found} if found else {}

    def summary(self) -> Summary:
        """Return the content of summary.json."""
        manifest: Mapping[str, Any] = self.manifest
        content = {
            "status": self.status,
            "makespan_ns": self.makespan_ns,
            "ranks": self.workload.ranks,
            "model": manifest["model"],
            "model_note": manifest["model_note"],
            "routing": manifest["routing"],
            "scope": scope(manifest["scope"], self.coverage, self.outcome.messages),
            **{name: manifest[name] for name in OF_PROFILE},
            "software": manifest["software"],
            **({"other_software": manifest["other_software"]} if "other_software" in manifest else {}),
            "folded": self._folded(),
            **{name: manifest[name] for name in ("uneven", "time_factors", "detail", "jobs")},
            **({"failures": failures} if (failures := self.outcome.failures) else {}),
            **self._deadlocks(),
            "out_of_memory": self.out_of_memory.as_dict() if self.out_of_memory else None,
            **({} if self.moved is None else {"spilled": self.moved.as_dict()}),
            "messages": self.outcome.messages,
            "bottleneck": bottleneck(self.outcome.load, self.measurement.actor_of_rank, self.makespan_ns),
            "costs": self.costs,
            **({} if self.power is None else {"power": self.power}),
            "throughput": self.throughput,
            **({} if self.uncertainty is None else {"uncertainty": self.uncertainty}),
            "packets": packets(self.outcome.ports),
            **figures_of_ranks(self.measurement),
            **({} if self.samples is None else {"samples": self.samples.summary()}),
            "explained": self.explained,
            "coverage": self.coverage,
            "warnings": manifest["warnings"],
            "defaults": manifest["defaults"],
        }
        return cast("Summary", content)
