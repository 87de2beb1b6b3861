"""A step that can be simulated: on the machine as it is, on a degraded one, and beside a checkpoint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct, field, to_builtins
from msgspec.structs import replace

from et_sim.basics.units import NS_PER_SECOND
from et_sim.execution import execute
from et_sim.goodput.copies import with_copies
from et_sim.goodput.storage import ends_of_step_and_writes, with_writes
from et_sim.run.options import RunOptions
from et_sim.run.small_run import PlannerUpTo
from et_sim.trace import Workload
from et_sim.version import __version__

Known = dict[str, int]  # simulated steps by the digest of their inputs, in ns
NOTHING: Mapping[str, Any] = MappingProxyType({})


class Beside(Struct, frozen=True):
    """Messages of a checkpoint beside a step: copies in memory, or writes to storage."""

    size: int  # bytes of each rank
    copies: int = 0  # into the memory of other nodes; 0: it is written to storage
    distance: int = 0  # of the next node, in ranks

    @property
    def ends(self) -> tuple[str, ...]:
        """Return the ends of the keys of its times."""
        return ("",) if self.copies else ("", ":writes")

    def added(self, workload: Workload) -> Workload:
        """Return the workload with these messages."""
        if self.copies:
            return with_copies(workload, self.size, self.copies, self.distance)
        return with_writes(workload, self.size)


class Source(Struct, frozen=True):
    """A workload, and the machine as it is."""

    workload: Callable[[], Workload]
    options: RunOptions
    system: Mapping[str, Any]
    network: Mapping[str, Any]
    model: str | None  # of the network; None: that of the machine by its name
    identity: Mapping[str, Any]  # of the workload and the options
    replicas: int = 1
    fewer: Callable[[int], Source] | None = None  # with so many replicas less; None: not known
    lost_with_node: Callable[[int], int] | None = None  # replicas that a node of so many GPUs has a part of
    has_messages: bool = True  # else only the time of the step is known

    def __post_init__(self) -> None:
        assert self.identity, "sources without an identity are taken for one"

    def options_of(self, changed: Mapping[str, Any]) -> RunOptions:
        """Return the options of a step on a machine with a changed system or network."""
        options = replace(self.options, samples=None, seed=None)
        if not changed or self.model is None:
            return replace(options, **changed)
        parts = {"system": self.system, "network": self.network, **changed}
        return replace(options, machine=None, model=self.model, **parts)


class Simulator(Struct):
    """Simulates steps that are not known yet."""

    known: Known = field(default_factory=dict)
    simulated: int = 0

    def has(self, source: Source, changed: Mapping[str, Any]) -> bool:
        """Return whether a step was simulated, or read."""
        return _key(source, None, changed) in self.known

    def seconds(
        self,
        source: Source,
        beside: Beside | None = None,
        changed: Mapping[str, Any] = NOTHING,
        most: int | None = None,
    ) -> tuple[float, ...]:
        """Return the time of a step, and that of writes beside it; `changed`: "system", "network".

        Raise TooLargeError if it has to be simulated with more than `most` messages and nodes.
        """
        key = _key(source, beside, changed)
        keys = [f"{key}{end}" for end in (beside.ends if beside else ("",))]
        if keys[0] not in self.known:
            workload = source.workload()
            made = workload if beside is None else beside.added(workload)
            result = execute(
                made, source.options_of(changed), planner=None if most is None else PlannerUpTo(most)
            )
            if not result.is_complete:
                stall = result.stall
                raise stall.as_error() if stall else result.why_stopped()
            found = ends_of_step_and_writes(result) if len(keys) > 1 else (result.makespan_ns,)
            self.known.update(zip(keys, found, strict=True))
            self.simulated += 1
        return tuple(self.known[each] / NS_PER_SECOND for each in keys)


def _key(source: Source, beside: Beside | None, changed: Mapping[str, Any]) -> str:
    """Return the digest of all inputs of a step."""
    messages = None if beside is None else to_builtins(beside)
    inputs = {**source.identity, "beside": messages, **changed, "et_sim": __version__}
    text = json.dumps(inputs, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
