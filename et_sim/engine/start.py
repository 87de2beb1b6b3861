"""The tables of a run before its first event, kept for further runs of the same plan.

All tables but those of the network follow from the plan. The next run restores them in place and copies its
own network tables over the former ones, so that compiled code finds everything where it was. The outcome of a
run is therefore valid until the next run begins.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from et_sim.compiled.signature import fields_of, signature_of
from et_sim.compiled.tables_by_reference import Tables
from et_sim.engine.pools import Reserve
from et_sim.engine.state.run import Run, alike_transfers
from et_sim.plan.fractions import check_lengths, shifted
from et_sim.plan.records import LoweredPlan

LARGEST_KEPT = 64 << 20  # bytes of copies; beside a larger run, making its tables takes no time
NOT_SAVED = ("plan", "network", "nodes")  # an actor that starts sets the state of its nodes
TIMED = ("nodes", "paces", "slowing", "programs", "transfers")  # tables of a plan whose times may be set anew


class Start(Struct, frozen=True, eq=False):
    """A run before its first event."""

    plan: LoweredPlan  # in the unit of time of the run
    reserve: Reserve
    run: Run


class KeptStart:
    """The start of the latest run of a plan."""

    def __init__(self) -> None:
        self.goes_ahead = True  # no run has had events whose order may differ then
        self._rules: Any = None
        self._start: Start | None = None
        self._saved: list[tuple[Any, Any]] = []  # arrays of the run, and their contents; None: zeros
        self._network: tuple[Any, list[Any]] = (None, [])  # the shape of its network's tables; their arrays

    def is_due(self, rules: Any) -> bool:
        """Return whether a run is worth keeping: the last one had the same rules (its other inputs)."""
        if self._rules == rules:
            return True
        self._rules, self._start = rules, None
        return False

    def keep(self, start: Start) -> Start:
        """Keep the start of a run unless it is large, and return it."""
        of_run = tuple(getattr(start.run, name) for name in Run.__struct_fields__ if name not in NOT_SAVED)
        state = _with_arrays(of_run)[1]
        network = _copied(start.run.network)
        is_alike = signature_of((network,)) == signature_of((start.run.network,))
        filled = [bool(array.any()) for array in state]
        size = sum(array.nbytes for array, is_filled in zip(state, filled, strict=True) if is_filled)
        if not is_alike or size > LARGEST_KEPT:
            return start
        own = {name: getattr(start.plan, name).copy() for name in TIMED}
        run = replace(start.run, network=network, plan=replace(start.run.plan, **own))
        self._start = replace(start, plan=replace(start.plan, **own), run=run)
        self._saved = [
            (array, array.copy() if is_filled else None)
            for array, is_filled in zip(state, filled, strict=True)
        ]
        self._network = _with_arrays(network)
        return self._start

    def again(self, rules: Any, plan: LoweredPlan, bits: int) -> Start | None:
        """Return the start for another run with the same rules, which has the times of a plan; its network is
        still the former one.
        """
        start = self._start if self._rules == rules else None
        if start is None or not _slows_alike(start.plan, plan):
            return None
        check_lengths(plan, bits)
        times, reductions = start.plan, plan.transfers.reduction_ns
        np.copyto(times.nodes["duration_ns"], plan.nodes["duration_ns"] << bits)
        np.copyto(times.paces, plan.paces << bits)
        np.copyto(times.slowing, plan.slowing)
        np.copyto(times.programs, plan.programs)
        np.copyto(times.transfers["reduction_ns"], shifted(reductions, bits))
        return start

    def restored(self, start: Start, network: Tables) -> Start:
        """Return the kept start with the tables of another network."""
        for array, content in self._saved:
            np.copyto(array, 0 if content is None else content)
        is_used = bool(start.run.repeats["is_on"][0])
        np.copyto(start.run.alike_transfers, alike_transfers(start.plan, is_used=is_used))
        arrays: list[Any] = []
        if self._network[0] == _taken_apart(network, arrays):
            for array, content in zip(self._network[1], arrays, strict=True):
                np.copyto(array, content)
            return start
        own = _copied(network)
        self._start = replace(start, run=replace(start.run, network=own))
        self._network = _with_arrays(own)
        return self._start


def _slows_alike(one: LoweredPlan, other: LoweredPlan) -> bool:
    """Return whether the same kernels take longer, whatever slows them."""
    if one.slowing is other.slowing:
        return True
    return np.array_equal(one.slowing.clip(0), other.slowing.clip(0)) and np.array_equal(
        one.slowdowns, other.slowdowns
    )


def _with_arrays(value: Any) -> tuple[Any, list[Any]]:
    """Return all of some tables but the contents of their arrays, and these."""
    arrays: list[Any] = []
    return _taken_apart(value, arrays), arrays


def _taken_apart(value: Any, arrays: list[Any]) -> Any:
    """Return all of some tables but the contents of their arrays, which are added in order, as bytes."""
    if isinstance(value, np.ndarray):
        plain = np.ndarray.view(value, np.ndarray)  # record arrays search attributes among their fields
        arrays.append(plain.reshape(-1).view(np.uint8))
        return plain.dtype, plain.shape
    if isinstance(value, Tables):
        kind: Any = type(value)
        return kind, *[_taken_apart(getattr(value, name), arrays) for name in fields_of(kind)]
    return tuple([_taken_apart(item, arrays) for item in value]) if isinstance(value, tuple) else value


def _copied(value: Any) -> Any:
    """Return tables with arrays of their own."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, Tables):
        kind: Any = type(value)
        return kind(**{name: _copied(getattr(value, name)) for name in fields_of(kind)})
    return tuple(map(_copied, value)) if type(value) is tuple else value
