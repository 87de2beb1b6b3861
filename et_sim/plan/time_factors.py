"""What the time factors of a system make of nodes: which they concern, and by how much their time changes.

What a node stands for is told by what its trace records of it, never by its name. Not here: how factors are
described (`et_sim.machine.system`), and rounding (`straggler_variants`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.basics.errors import MachineError, did_you_mean
from et_sim.basics.units import rank_mask
from et_sim.machine.model import Notice, TimeFactors, WorkKind
from et_sim.plan.streams import is_named
from et_sim.plan.tables import Action
from et_sim.trace.columns import BoolColumn, NodeKind, Trace

KEY = "time-factors"
_COMMUNICATION = (int(NodeKind.COLL), int(NodeKind.SEND), int(NodeKind.RECV))
_SUGGESTED = 1000  # names that are looked at for one that was meant


@dataclass(slots=True)
class _Met:
    """What one factor of an entry met, over all traces of its ranks."""

    nodes: int = 0  # of the kind, whatever their names
    changed: int = 0
    simulated: int = 0  # communication that takes what the network takes


class FactorTable:
    """The factors of all entries, by kind of work, name and rank."""

    def __init__(self, entries: tuple[TimeFactors, ...], ranks: int) -> None:
        self._entries = entries
        self._concerned = [rank_mask(entry.ranks, ranks) for entry in entries]
        self._met = [{kind: _Met() for kind in entry.factors} for entry in entries]
        self._names: list[set[str]] = [set() for _ in entries]  # of the kinds that an entry is about
        self._ranks = ranks

    def classes(self) -> Any | None:
        """A number per rank, equal where all factors are; None: they are everywhere."""
        factors: dict[tuple[WorkKind, str | None], Any] = {}
        for entry, concerned in zip(self._entries, self._concerned, strict=True):
            for kind, factor in entry.factors.items():
                column = factors.setdefault((kind, entry.name), np.ones(self._ranks))
                column[concerned] *= factor
        uneven = [column for column in factors.values() if (column != column[0]).any()]
        return np.unique(np.stack(uneven), axis=1, return_inverse=True)[1].reshape(-1) if uneven else None

    def of(self, nodes: Any, trace: Trace, rank: int) -> Any | None:
        """What the time of each node is multiplied by on a rank; None: nothing changes."""
        factors = None
        for entry, concerned, met, names in zip(
            self._entries, self._concerned, self._met, self._names, strict=True
        ):
            if not concerned[rank]:
                continue
            factors = np.ones(len(trace)) if factors is None else factors
            fits = is_named(trace, entry.name)
            for kind, factor in entry.factors.items():
                is_kind = of_kind(trace, kind)
                takes_time = is_kind & (nodes["action"] == Action.DELAY)
                if entry.name is not None:
                    names.update(trace.names[name] for name in np.unique(trace.name[takes_time]).tolist())
                rows = takes_time & fits
                factors[rows] *= factor
                met[kind].nodes += int(takes_time.sum())
                met[kind].changed += int(rows.sum())
                if kind is WorkKind.COMMUNICATION:
                    met[kind].simulated += int((is_kind & fits & ~takes_time).sum())
        return factors

    def check_all_met(self) -> list[Notice]:
        """Refuse names that no node has, and factors of what is simulated; say what else has no effect."""
        notices = []
        for entry, met, names in zip(self._entries, self._met, self._names, strict=True):
            _refuse_simulated(entry, met.get(WorkKind.COMMUNICATION))
            if entry.name is not None and not any(one.changed for one in met.values()):
                raise _no_such_name(entry, names)
            for kind, one in met.items():
                if text := _without_effect(entry, kind, one):
                    notices.append(Notice(entry.place, kind.value, text))
        return notices


def of_kind(trace: Trace, kind: WorkKind) -> BoolColumn:
    """Which nodes are of a kind of work; each is of one at most."""
    computes, on_host = trace.kind == NodeKind.COMP, trace.is_cpu
    works = computes & ~trace.is_gap
    match kind:
        case WorkKind.KERNELS:
            found = works & ~on_host & ~trace.is_copy
        case WorkKind.COPIES:
            found = works & ~on_host & trace.is_copy
        case WorkKind.OPERATORS:
            found = works & on_host & ~trace.is_launch
        case WorkKind.LAUNCHES:
            found = works & on_host & trace.is_launch
        case WorkKind.GAPS:
            found = computes & trace.is_gap
        case WorkKind.COMMUNICATION:
            found = np.isin(trace.kind, _COMMUNICATION)
    return found


def _refuse_simulated(entry: TimeFactors, met: _Met | None) -> None:
    if met is not None and met.simulated and not met.changed:
        raise MachineError(
            'key "communication" has no effect: all communication of these ranks is simulated, and takes '
            "what the network takes",
            place=entry.place,
            remedy='change the network file, or set "replay-only": 1 to take recorded times',
        )


def _no_such_name(entry: TimeFactors, names: set[str]) -> MachineError:
    kinds = " and ".join(entry.factors)
    wanted = (entry.name or "").strip("*")
    known = sorted(names)[:_SUGGESTED]
    examples = ", ".join(f'"{name[:60]}"' for name in known[:3])
    remedy = did_you_mean(wanted, known) or (f"there are {examples}" if known else f"they have no {kinds}")
    return MachineError(
        f'key "name" is "{entry.name}", and none of the {kinds} of these ranks is called that',
        place=entry.place,
        remedy=f"{remedy}; * stands for any text" if "*" not in (entry.name or "") else remedy,
    )


def _without_effect(entry: TimeFactors, kind: WorkKind, met: _Met) -> str:
    """Why a factor changes less than it may seem to; empty if it does not."""
    if entry.factors[kind] == 1:
        return ""
    if not met.changed:
        named = "" if entry.name is None else f' called "{entry.name}"'
        return f"no effect: these ranks have no {kind}{named}"
    if met.simulated:
        return (
            f"changes {met.changed:,} that are replayed; {met.simulated:,} are simulated, and take what the "
            "network takes"
        )
    return ""
