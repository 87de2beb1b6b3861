"""The stall report: equal statements grouped, every list cut short, at most some forty lines in all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from et_sim.basics.errors import StallError
from et_sim.basics.units import format_ns, format_ranks, ranks_text
from et_sim.engine.stall.state import short
from et_sim.engine.stall.waits import RANKS, KnotHop, Wait
from et_sim.trace.preflight import Problem
from et_sim.trace.workload import Job

MOST_WAITS = 10
MOST_HOPS = 7
MOST_NEAREST = 4
MOST_REMEDIES = 6
MOST_JOBS = 4
# Waits that only follow from others are reported last.
CONSEQUENCES = ("lane",)
# Waits in which each side lacks what the other one has: the sides are reported apart.
TWO_SIDED = ("member-mismatch", "member-renumbered", "member-turned")
# Waits that no rank can end.
FINAL = (
    "send-missing",
    "receive-missing",
    "member-mismatch",
    "member-renumbered",
    "member-absent",
    "member-turned",
    "cycle",
    "queue-closed",
)

# Kind, operation, name of the node, sentence, and the providers if the sides are apart: equal in a group.
Key = tuple[str, str, str, str, tuple[int, ...]]


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

    @property
    def line(self) -> str:
        """Return the whole sentence."""
        return f"{ranks_text(self.ranks)} {'waits' if len(self.ranks) == 1 else 'wait'} for {self.text}"

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
    nearest: tuple[str, ...] = ()  # mistakes of the traces, in the words of `et-sim check`
    failure: str = ""  # why the explanation ends here

    def as_error(self) -> StallError:
        """Return the stall as the exception that ends a run."""
        return StallError(self.cause, report=self.text, remedy=self.remedies[0] if self.remedies else "")

    @property
    def dead_ends(self) -> tuple[str, ...]:
        """Return the waits that no rank can end."""
        return tuple(group.line for group in grouped_waits(self.waits) if group.kind in FINAL)

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
            ("Mistakes in the traces:", _cut([t for t in self.nearest if t not in self.cause], MOST_NEAREST)),
            ("Remedies:", _cut(self.remedies, MOST_REMEDIES)),
        )
        lines = [self.cause, f"The last event was at {format_ns(self.end_ns)}."]
        lines += [self.alike] if self.alike else []
        for title, shown in lists:
            lines += [title, *shown] if shown or title == "Waiting:" else []
        return "\n".join(lines)


def grouped_waits(waits: Iterable[Wait]) -> list[WaitGroup]:
    """Return waits with equal texts, which differ in ranks, node ids and providers, as one group."""
    groups: dict[Key, list[Wait]] = {}
    for wait in waits:
        side = wait.provider if wait.kind in TWO_SIDED else ()
        groups.setdefault((wait.kind, wait.operation, wait.node_name, wait.sentence, side), []).append(wait)
    wait_groups = [_group(key, members) for key, members in groups.items()]
    wait_groups.sort(key=lambda group: (group.kind in CONSEQUENCES, group.ranks[0], group.since_ns))
    return wait_groups


def _group(key: Key, waits: list[Wait]) -> WaitGroup:
    providers: set[int] = set()
    seen: set[int] = set()
    for wait in waits:
        if id(wait.provider) not in seen:  # ranks of one phase share the tuple
            seen.add(id(wait.provider))
            providers.update(wait.provider)
    kind, operation, name, sentence, _ = key
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
    if not group.operation:
        return group.line
    node = f", node {group.node_ids[0]}" if len(group.node_ids) == 1 else ""
    since = f"since {format_ns(group.since_ns)}"
    return f'{group.line} ({group.operation} "{short(group.node_name)}"{node}, {since})'


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
    kinds: set[str],
    mistakes: Sequence[Problem],
    knot: Sequence[KnotHop],
    *,
    queue_in_knot: bool,
    misplaced: bool,
) -> Iterable[str]:
    """Yield the remedies, most specific first."""
    yield from dict.fromkeys(mistake.remedy for mistake in mistakes)
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
    if "queue-closed" in kinds:
        yield "set active-chunks-per-dimension to 1 or more"
    if "receive-pending" in kinds:
        yield (
            "post receives before the sends that hold them up (let no receive depend on such a send), "
            "or turn rendezvous-protocol off (on the LogGOPS model: raise S)"
        )
    if kinds & {"member-mismatch", "member-absent"} and not mistakes:
        yield "let all members of a group issue the same collectives in the same order"
    if "member-turned" in kinds:
        yield "let all ranks run the same collectives, or set num-queues-per-dim to 1"
    if knot and not queue_in_knot and not misplaced and not mistakes:
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
    return [line for job in jobs if (line := job.numbered(unfinished))]


def _cut(lines: Sequence[str], most: int) -> list[str]:
    shown = [f"  {line}" for line in lines[:most]]
    return shown if len(lines) <= most else [*shown, f"  … and {len(lines) - most} more"]


def _middle_cut(lines: list[str], most: int) -> list[str]:
    if len(lines) <= most:
        return [f"  {line}" for line in lines]
    left_out = len(lines) - most
    return [*(f"  {line}" for line in lines[: most - 1]), f"  … {left_out} more …", f"  {lines[-1]}"]
