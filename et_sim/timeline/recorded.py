"""What there is of a run once it is over: all that its tables and its summary are made of."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from et_sim.engine.outcome import Outcome
from et_sim.machine.accuracy import Accuracy
from et_sim.plan.spilled import Moved
from et_sim.timeline.bottleneck import bottleneck, why_unknown
from et_sim.timeline.costs import costs
from et_sim.timeline.explained import explained
from et_sim.timeline.layers import LayerRun
from et_sim.timeline.measurement import Measurement
from et_sim.timeline.out_of_memory import OutOfMemory
from et_sim.timeline.packet_totals import packets
from et_sim.timeline.rank_figures import figures_of_ranks
from et_sim.timeline.scope import scope
from et_sim.timeline.spool import CausalEvents, Messages, Phases, PortRecord
from et_sim.timeline.statistics import Statistics
from et_sim.timeline.throughput import throughput
from et_sim.trace.workload import Workload


@dataclass(eq=False)
class RecordedRun:
    """An outcome, what went in, and what was recorded on the way."""

    outcome: Outcome
    workload: Workload
    manifest: dict[str, Any]
    command: dict[str, Any] | None = None  # what was simulated, and how, if all of it is in files
    causal_events: CausalEvents | None = None  # what caused what, if that was recorded
    phases: Phases | None = None  # what became of the chunks of collectives, if that was logged
    layers: LayerRun | None = None  # of a layer file
    messages: Messages | None = None  # all of them, if they were logged
    ports: PortRecord | None = None  # pauses, and messages that packets carried, if ports were recorded
    out_of_memory: OutOfMemory | None = None  # when it first needed more local memory than there is
    until_end: Outcome | None = None  # of a run that was stopped: what would have come
    moved: Moved | None = None  # to and from remote memory, where local memory may spill
    capacity_bytes: int | None = None  # of local memory, if it is known

    @cached_property
    def measurement(self) -> Measurement:
        """The rows of the timeline, and what they add up to."""
        stated = self.manifest.get("accuracy") if self.is_complete else None
        accuracy = None if stated is None else Accuracy.from_dict(stated)
        return Measurement(self.outcome, self.workload, self.until_end, accuracy)

    @property
    def manifest_text(self) -> str:
        """The manifest but for the configuration, which may list many links, as canonical JSON."""
        told = {key: value for key, value in self.manifest.items() if key != "configuration"}
        return json.dumps(told, sort_keys=True)

    @property
    def is_complete(self) -> bool:
        """Whether every rank finished, and the run was not stopped just then."""
        return self.outcome.is_complete and not self.is_stopped

    @property
    def makespan_ns(self) -> int:
        """When the last rank finished; of an incomplete run, when the last thing happened."""
        return int(self.outcome.finish_ns.max()) if self.is_complete else self.outcome.end_ns

    @property
    def statistics(self) -> Statistics:
        """All figures, per actor."""
        return self.measurement.statistics

    @cached_property
    def explained(self) -> dict[str, Any] | None:
        """How much of the longest path is no gap of a recording; None where there are no gaps."""
        return explained(self.outcome, self.workload, self.measurement.source.waits)

    @cached_property
    def costs(self) -> dict[str, Any] | None:
        """What the run takes of energy and money; None where the machine does not say."""
        return costs(self.manifest["costs"], self.measurement, self.makespan_ns)

    @property
    def uncertainty(self) -> dict[str, Any] | None:
        """The band of the makespan, and what it rests on; None where the machine states no accuracy."""
        found = self.measurement.composition
        return None if found is None else found.summary(self.makespan_ns)

    @cached_property
    def throughput(self) -> dict[str, Any] | None:
        """Tokens per second, MFU and so on; None of workloads that do not say what a run of them does."""
        if not self.is_complete:
            return None
        peaks, ranks = self.manifest["peak_tflops"], self.workload.ranks
        return throughput(self.workload.step, peaks, ranks, self.makespan_ns, self.costs)

    @property
    def coverage(self) -> dict[str, Any]:
        """What was modelled, replayed, defaulted, instant or not executed."""
        return self.measurement.coverage

    @property
    def status(self) -> str:
        """Whether all ranks finished, or why not."""
        if self.is_complete:
            return "complete"
        return "out of memory" if self.is_stopped else "stalled"

    @property
    def is_stopped(self) -> bool:
        """Whether it ends where memory was full."""
        return self.until_end is not None

    def summary(self) -> dict[str, Any]:
        """What summary.json holds."""
        return {
            "status": self.status,
            "makespan_ns": self.makespan_ns,
            "ranks": self.workload.ranks,
            "model": self.manifest["model"],
            "model_note": self.manifest["model_note"],
            "scope": scope(self.manifest["scope"], self.coverage, self.outcome.messages),
            "profile": self.manifest["profile"],
            "profile_named_by": self.manifest["profile_named_by"],
            "corrections": self.manifest["corrections"],
            "switched": self.manifest["switched"],
            "other_profile": self.manifest["other_profile"],
            "folded": {"actors": self.measurement.source.actors, "ranks": self.workload.ranks},
            "uneven": self.manifest["uneven"],
            "time_factors": self.manifest["time_factors"],
            "detail": self.manifest["detail"],
            "jobs": self.manifest["jobs"],
            "out_of_memory": self.out_of_memory.as_dict() if self.out_of_memory else None,
            **({} if self.moved is None else {"spilled": self.moved.as_dict()}),
            "messages": self.outcome.messages,
            "bottleneck": bottleneck(self.outcome.load, self.measurement.actor_of_rank, self.makespan_ns),
            "bottleneck_unknown": why_unknown(self.outcome.load),
            "costs": self.costs,
            "throughput": self.throughput,
            **({} if self.uncertainty is None else {"uncertainty": self.uncertainty}),
            "packets": packets(self.outcome.ports),
            **figures_of_ranks(self.measurement),
            "explained": self.explained,
            "coverage": self.coverage,
            "warnings": self.manifest["warnings"],
            "defaults": self.manifest["defaults"],
        }
