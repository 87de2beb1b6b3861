"""The stall report: like statements grouped, every list cut short, at most some forty lines in all.

Not here: what is true (`graph`) and single statements (`waits`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from et_sim.basics.units import format_ns
from et_sim.engine.stall.state import ranks_text, short
from et_sim.engine.stall.waits import WHO, DeadEnd, Hop, Wait
from et_sim.trace.workload import Job

MOST_WAITS = 10
MOST_HOPS = 7
MOST_DEAD_ENDS = 5
MOST_NEAREST = 4
MOST_REMEDIES = 6
MOST_JOBS = 4
# Waits that only follow from others are told last.
CONSEQUENCES = ("lane",)
# Dead ends in which each side lacks what the other one has: the sides are not told as one.
TWO_SIDED = ("member-mismatch", "member-renumbered", "member-turned")


class WaitGroup(NamedTuple):
    """Like waits of several ranks."""

    ranks: tuple[int, ...]
    kind: str
    operation: str
    node_name: str
    node_ids: tuple[int, ...]  # at most a few
    sentence: str
    provider: tuple[int, ...]
    since_ns: int

    @property
    def what(self) -> str:
        """What they wait for, in words."""
        each_other = len(self.ranks) > 1 and self.ranks == self.provider
        return self.sentence.replace(WHO, "each other" if each_other else ranks_text(self.provider))


def grouped_waits(waits: Iterable[Wait]) -> list[WaitGroup]:
    """Waits that differ in nothing but their ranks, node ids and providers, as one."""
    groups: dict[tuple[str, str, str, str], list[Wait]] = {}
    for wait in waits:
        groups.setdefault((wait.kind, wait.operation, wait.node_name, wait.sentence), []).append(wait)
    found = [_group(key, members) for key, members in groups.items()]
    found.sort(key=lambda group: (group.kind in CONSEQUENCES, group.ranks[0], group.since_ns))
    return found


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


def wait_lines(groups: Sequence[WaitGroup]) -> list[str]:
    """One line per group of waits."""
    return [_wait_line(group) for group in groups]


def _wait_line(group: WaitGroup) -> str:
    verb = "waits" if len(group.ranks) == 1 else "wait"
    since = f"since {format_ns(group.since_ns)}"
    if not group.operation:
        return f"{ranks_text(group.ranks)} {verb} for {group.what}"
    node = f", node {group.node_ids[0]}" if len(group.node_ids) == 1 else ""
    return (
        f"{ranks_text(group.ranks)} {verb} for {group.what} "
        f'({group.operation} "{short(group.node_name)}"{node}, {since})'
    )


def dead_end_lines(dead_ends: Iterable[DeadEnd]) -> list[str]:
    """One line per kind of dead end."""
    groups: dict[tuple[str, str, tuple[int, ...]], tuple[set[int], set[int]]] = {}
    for end in dead_ends:
        side = end.subject if end.kind in TWO_SIDED else ()
        subject, needed_by = groups.setdefault((end.kind, end.sentence, side), (set(), set()))
        subject.update(end.subject)
        needed_by.update(end.needed_by)
    return [
        f"{ranks_text(subject)} {sentence.replace(WHO, ranks_text(needed_by))}"
        for (_, sentence, _), (subject, needed_by) in groups.items()
    ]


def chain_lines(hops: Sequence[Hop]) -> list[str]:
    """The knot, one hop per line."""
    lines = []
    for index, hop in enumerate(hops):
        arrow = "→ " if index else ""
        if hop.rank == hop.waits_for:
            lines.append(f"{arrow}rank {hop.rank}: {hop.reason}")
        else:
            lines.append(f"{arrow}rank {hop.rank} waits for rank {hop.waits_for} ({hop.reason})")
    return lines


def remedies(
    kinds: set[str], nearest: Sequence[str], knot: Sequence[Hop], *, queue_in_knot: bool, misplaced: bool
) -> Iterable[str]:
    """What the user can do, most specific first."""
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


def report(
    *,
    head: str,
    end_ns: int,
    alike: str,
    jobs: Sequence[str],
    waits: list[str],
    chain: list[str],
    knots: int,
    dead_ends: list[str],
    nearest: list[str],
    remedies: list[str],
) -> str:
    """The whole report."""
    lines = [
        head,
        f"The last thing happened at {format_ns(end_ns)}.",
        *([alike] if alike else []),
        *(["Unfinished jobs:", *_cut(list(jobs), MOST_JOBS)] if jobs else []),
        "Waiting:",
    ]
    lines += _cut(waits, MOST_WAITS)
    if chain:
        more = f" (one of {knots})" if knots > 1 else ""
        lines += [f"The knot{more}:", *_middle_cut(chain, MOST_HOPS)]
    if dead_ends:
        lines += ["What nobody will provide:", *_cut(dead_ends, MOST_DEAD_ENDS)]
    if nearest:
        lines += ["Nearest mismatch:", *_cut(nearest, MOST_NEAREST)]
    if remedies:
        lines += ["What to do:", *_cut(remedies, MOST_REMEDIES)]
    return "\n".join(lines)


def told_together(actors: int, ranks: int) -> str:
    """What to know about the ranks of a report if not every rank was simulated by itself."""
    if actors == ranks:
        return ""
    what = "1 actor" if actors == 1 else f"{actors:,} actors"
    return (
        f"The {ranks:,} ranks were simulated as {what}: each rank named here is the lowest of its actor, and "
        "stands for all of its ranks."
    )


def job_lines(jobs: Iterable[Job], unfinished: Sequence[int]) -> list[str]:
    """Which ranks of which job cannot finish, as the job numbers them, and as all else here does."""
    found, stuck = [], np.asarray(unfinished, np.int64)
    for job in jobs:
        own = np.flatnonzero(np.isin(job.npus, stuck)).tolist()
        if own:
            named = ranks_text(job.npus[own].tolist())
            verb = "is" if len(own) == 1 else "are"
            found.append(f"{job.name}: its {ranks_text(own)} {verb} {named} here")
    return found


def _cut(lines: list[str], most: int) -> list[str]:
    shown = [f"  {line}" for line in lines[:most]]
    return shown if len(lines) <= most else [*shown, f"  … and {len(lines) - most} more"]


def _middle_cut(lines: list[str], most: int) -> list[str]:
    if len(lines) <= most:
        return [f"  {line}" for line in lines]
    left_out = len(lines) - most
    return [*(f"  {line}" for line in lines[: most - 1]), f"  … {left_out} more …", f"  {lines[-1]}"]
