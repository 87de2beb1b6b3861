"""The stall report: equal statements grouped, every list cut short, at most some forty lines in all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from et_sim.basics.errors import StallError
from et_sim.basics.units import format_ns, format_ranks
from et_sim.engine.stall.state import ranks_text, short
from et_sim.engine.stall.waits import RANKS, DeadEnd, KnotHop, Wait
from et_sim.trace.workload import Job

MOST_WAITS = 10
MOST_HOPS = 7
MOST_DEAD_ENDS = 5
MOST_NEAREST = 4
MOST_REMEDIES = 6
MOST_JOBS = 4
# Waits that only follow from others are reported last.
CONSEQUENCES = ("lane",)
# Dead ends in which each side lacks what the other one has: the sides are reported apart.
TWO_SIDED = ("member-mismatch", "member-renumbered", "member-turned")


class WaitGroup(NamedTuple):
    """Equal waits of several ranks."""

    ranks: tuple[int, ...]
    kind: str
    operation: str
    node_name: str
    node_ids: tuple[int, ...]  # at most a few
    sentence: str
    provider: tuple[int, ...]
    since_ns: int

    @property
    def text(self) -> str:
        """Return what the ranks wait for, in words."""
        each_other = len(self.ranks) > 1 and self.ranks == self.provider
        return self.sentence.replace(RANKS, "each other" if each_other else ranks_text(self.provider))

    def as_dict(self) -> dict[str, Any]:
        """Return the group as plain values."""
        return {
            "ranks": format_ranks(self.ranks),
            "kind": self.kind,
            "operation": self.operation,
            "node_name": self.node_name,
            "node_ids": list(self.node_ids),
            "waits_for": self.text,
            "provider": format_ranks(self.provider),
            "since_ns": self.since_ns,
        }


class Stall(Struct, frozen=True, kw_only=True):
    """The reasons for which a run could not complete."""

    ranks: int
    alike: str  # note on ranks that were simulated together, if any were
    end_ns: int
    unfinished: tuple[int, ...]
    cause: str  # the stall in one sentence
    remedies: tuple[str, ...]
    jobs: tuple[str, ...] = ()  # of several workloads side by side, the ranks of each that cannot finish
    waits: tuple[Wait, ...] = ()
    knot: tuple[KnotHop, ...] = ()  # the wait-for cycle, rank by rank; empty: there is none
    knots: int = 0  # number of such cycles
    dead_ends: tuple[str, ...] = ()  # things that no rank will ever provide
    nearest: tuple[str, ...] = ()  # near misses
    failure: str = ""  # why the explanation ends here

    def as_error(self) -> StallError:
        """Return the stall as the exception that ends a run."""
        return StallError(self.cause, report=self.text, remedy=self.remedies[0] if self.remedies else "")

    def as_dict(self) -> dict[str, Any]:
        """Return the stall as plain values: equal waits are one entry, ranks are texts such as 0-3,6."""
        return {
            "ranks": self.ranks,
            "alike": self.alike,
            "jobs": list(self.jobs),
            "end_ns": self.end_ns,
            "unfinished": format_ranks(self.unfinished),
            "cause": self.cause,
            "waits": [group.as_dict() for group in grouped_waits(self.waits)],
            "knot": [hop._asdict() for hop in self.knot],
            "dead_ends": list(self.dead_ends),
            "nearest": list(self.nearest),
            "remedies": list(self.remedies),
        }

    @property
    def text(self) -> str:
        """Return the whole report."""
        if self.failure:
            return f"{self.cause}\n{self.failure}"
        more = f" (one of {self.knots})" if self.knots > 1 else ""
        lists = (
            ("Unfinished jobs:", _cut(self.jobs, MOST_JOBS)),
            ("Waiting:", _cut([_wait_line(group) for group in grouped_waits(self.waits)], MOST_WAITS)),
            (f"The knot{more}:", _middle_cut(_chain_lines(self.knot), MOST_HOPS)),
            ("Never provided:", _cut(self.dead_ends, MOST_DEAD_ENDS)),
            ("Nearest mismatch:", _cut(self.nearest, MOST_NEAREST)),
            ("Remedies:", _cut(self.remedies, MOST_REMEDIES)),
        )
        lines = [self.cause, f"The last thing happened at {format_ns(self.end_ns)}."]
        lines += [self.alike] if self.alike else []
        for title, shown in lists:
            lines += [title, *shown] if shown or title == "Waiting:" else []
        return "\n".join(lines)


def grouped_waits(waits: Iterable[Wait]) -> list[WaitGroup]:
    """Return waits with equal texts, which differ in ranks, node ids and providers, as one group."""
    groups: dict[tuple[str, str, str, str], list[Wait]] = {}
    for wait in waits:
        groups.setdefault((wait.kind, wait.operation, wait.node_name, wait.sentence), []).append(wait)
    wait_groups = [_group(key, members) for key, members in groups.items()]
    wait_groups.sort(key=lambda group: (group.kind in CONSEQUENCES, group.ranks[0], group.since_ns))
    return wait_groups


def _group(key: tuple[str, str, str, str], waits: list[Wait]) -> WaitGroup:
    providers: set[int] = set()
    seen: set[int] = set()
    for wait in waits:
        if id(wait.provider) not in seen:  # ranks of one phase share the tuple
            seen.add(id(wait.provider))
            providers.update(wait.provider)
    kind, operation, name, sentence = key
    return WaitGroup(
        ranks=tuple(sorted({wait.rank for wait in waits})),
        kind=kind,
        operation=operation,
        node_name=name,
        node_ids=tuple(sorted({wait.node_id for wait in waits})[:4]),
        sentence=sentence,
        provider=tuple(sorted(providers)),
        since_ns=min(wait.since_ns for wait in waits),
    )


def _wait_line(group: WaitGroup) -> str:
    verb = "waits" if len(group.ranks) == 1 else "wait"
    since = f"since {format_ns(group.since_ns)}"
    if not group.operation:
        return f"{ranks_text(group.ranks)} {verb} for {group.text}"
    node = f", node {group.node_ids[0]}" if len(group.node_ids) == 1 else ""
    return (
        f"{ranks_text(group.ranks)} {verb} for {group.text} "
        f'({group.operation} "{short(group.node_name)}"{node}, {since})'
    )


def dead_end_lines(dead_ends: Iterable[DeadEnd]) -> list[str]:
    """Return one line per kind of dead end."""
    groups: dict[tuple[str, str, tuple[int, ...]], tuple[set[int], set[int]]] = {}
    for end in dead_ends:
        side = end.subject if end.kind in TWO_SIDED else ()
        subject, needed_by = groups.setdefault((end.kind, end.sentence, side), (set(), set()))
        subject.update(end.subject)
        needed_by.update(end.needed_by)
    return [
        f"{ranks_text(subject)} {sentence.replace(RANKS, ranks_text(needed_by))}"
        for (_, sentence, _), (subject, needed_by) in groups.items()
    ]


def _chain_lines(hops: Sequence[KnotHop]) -> list[str]:
    """Return the knot, one hop per line."""
    lines = []
    for index, hop in enumerate(hops):
        arrow = "→ " if index else ""
        if hop.rank == hop.waits_for:
            lines.append(f"{arrow}rank {hop.rank}: {hop.reason}")
        else:
            lines.append(f"{arrow}rank {hop.rank} waits for rank {hop.waits_for} ({hop.reason})")
    return lines


def remedies(
    kinds: set[str], nearest: Sequence[str], knot: Sequence[KnotHop], *, queue_in_knot: bool, misplaced: bool
) -> Iterable[str]:
    """Yield the remedies, most specific first."""
    if queue_in_knot:
        yield (
            "set num-queues-per-dim to 2 or more, or active-chunks-per-dimension to at least "
            "preferred-dataset-splits, or switch the correction two-way-queues on, so that chunks cannot "
            "block each other's queues"
        )
    if misplaced:
        yield (
            "list the ranks of the group in ascending order, or switch the correction custom-by-position on, "
            "so that every rank runs the custom program of its place in the list"
        )
    if any("also take numbers" in text for text in nearest):
        yield (
            "simulate with --profile corrected, or switch the correction group-counters on, so that every "
            "group has a count of its own; or list all ranks as a communicator group of their own, and use it"
        )
    if "cycle" in kinds:
        yield "remove one of the dependencies on the cycle from the trace"
    if "queue-closed" in kinds:
        yield "set active-chunks-per-dimension to 1 or more"
    if "receive-pending" in kinds:
        yield (
            "post receives before the sends that hold them up (let no receive depend on such a send), "
            "or turn rendezvous-protocol off (on the LogGOPS model: raise S)"
        )
    if kinds & {"send-missing", "receive-missing"}:
        yield "give the send and its receive the same ends, tag and size, or add the missing one"
    if kinds & {"member-mismatch", "member-absent"}:
        yield "let all members of a group issue the same collectives in the same order"
    if "member-turned" in kinds:
        yield "let all ranks run the same collectives, or set num-queues-per-dim to 1"
    if knot and not queue_in_knot and not misplaced and "cycle" not in kinds:
        yield "change the order of communication on one of the ranks of the knot"


def actors_note(actors: int, ranks: int) -> str:
    """Return a note on the ranks of a report if not every rank was simulated by itself."""
    if actors == ranks:
        return ""
    actors_counted = "1 actor" if actors == 1 else f"{actors:,} actors"
    return (
        f"The {ranks:,} ranks were simulated as {actors_counted}: each rank named here is the lowest of its "
        "actor, and represents all of its ranks."
    )


def job_lines(jobs: Iterable[Job], unfinished: Sequence[int]) -> list[str]:
    """Return the unfinished ranks of each job, as numbers in the job and in the whole run."""
    lines, stuck = [], np.asarray(unfinished, np.int64)
    for job in jobs:
        ranks = np.flatnonzero(np.isin(job.npus, stuck)).tolist()
        if ranks:
            named = ranks_text(job.npus[ranks].tolist())
            verb = "is" if len(ranks) == 1 else "are"
            lines.append(f"{job.name}: its {ranks_text(ranks)} {verb} {named} here")
    return lines


def _cut(lines: Sequence[str], most: int) -> list[str]:
    shown = [f"  {line}" for line in lines[:most]]
    return shown if len(lines) <= most else [*shown, f"  … and {len(lines) - most} more"]


def _middle_cut(lines: list[str], most: int) -> list[str]:
    if len(lines) <= most:
        return [f"  {line}" for line in lines]
    left_out = len(lines) - most
    return [*(f"  {line}" for line in lines[: most - 1]), f"  … {left_out} more …", f"  {lines[-1]}"]
