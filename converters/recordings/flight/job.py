"""A job from the dumps of all ranks: the recorded operations, as if every rank had come to each.

A rank issues its operations at the times at which its host did: between two of them, the host's time passes.
Operations of a group follow each other. An operation to which a rank never came is added at the end of its
program. Operations that older buffers of other members lost are left out, and so are messages without their
other half.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, field

from converters.pytorch.calls import rules
from converters.recordings.flight.dumps import Dump, Entry
from converters.recordings.flight.groups import DEAD, ORDER, SIZE, Operations, fault_of, operations
from converters.recordings.flight.messages import ends_of
from converters.recordings.flight.report import explain
from et_sim.basics.errors import InputError
from et_sim.basics.units import ranks_text
from et_sim.trace import Trace, TraceBuilder
from et_sim.trace.columns import CollectiveKind

GAP = "time between operations"
MOST_BYTES = 1 << 62


class _Step(Struct, frozen=True):
    """An operation of a rank; messages have a peer and a tag."""

    entry: Entry
    group: str
    bytes: int
    is_added: bool = False
    peer: int = -1
    tag: int = 0


class DumpedJob(Struct):
    """The programs of all ranks, and counts of what was added and left out."""

    traces: list[Trace] = field(default_factory=list)
    remarks: Counter[str] = field(default_factory=Counter)

    def notes(self) -> Iterator[tuple[str, str]]:
        """Yield remarks as notes of a report."""
        yield "times", "between operations those of the hosts, which include their waits"
        yield "kernels", "not in the dumps: only the host and operations take time"
        for text, count in self.remarks.items():
            yield "remark", f"{count:,} x {text}"


def job_of(dumps: Sequence[Dump], place: str) -> DumpedJob:
    """Return the job; refuse dumps whose ranks disagree, or some of which are missing."""
    groups = operations(dumps)
    own = {dump.rank for dump in dumps}
    ranks = sorted(own.union(*(group.members for group in groups)))
    missing = [rank for rank in ranks if rank not in own] or sorted(set(range(len(ranks))) - own)
    if missing:
        remedy = "a job needs the dump of each rank: add them"
        raise InputError(f"{ranks_text(missing)} left no dump", place=place, remedy=remedy)
    for group in groups:
        fault = fault_of(group, frozenset())
        if fault is not None and fault.kind in (ORDER, SIZE, DEAD):
            remedy = "leave -o out for the report on the hang"
            raise InputError(f"no job: {explain(dumps).cause}", place=place, remedy=remedy)
    job = DumpedJob()
    kept = {group.name: _kept(group, job.remarks) for group in groups}
    members = {group.name: group.members for group in groups}
    tags = _tags(dumps, members, job.remarks)
    late = [
        (entry, group) for group in groups for number in kept[group.name] if (entry := _first(group, number))
    ]
    late.sort(key=lambda pair: pair[0].time_created_ns)
    for dump in dumps:
        steps = [*_own(dump, kept, tags, members), *_added(dump.rank, late, job.remarks)]
        job.traces.append(_trace(dump, steps, members, len(ranks), job.remarks))
    if not any(len(trace) for trace in job.traces):
        raise InputError(
            "no operation was recorded by all members of its group",
            place=place,
            remedy="record more entries: TORCH_FR_BUFFER_SIZE",
        )
    return job


def _first(group: Operations, number: int) -> Entry | None:
    """Return the entry of an operation that was issued first."""
    return min(group.present(number).values(), key=lambda entry: entry.time_created_ns, default=None)


def _kept(group: Operations, remarks: Counter[str]) -> set[int]:
    """Return the numbers of operations that each member issued, or never came to."""
    numbers = {number for of in group.of_rank.values() for number in of}
    kept = {
        number
        for number in numbers
        if set(group.present(number)) | set(group.absent(number)) >= group.members
    }
    if kept != numbers:
        remarks["operations that are not in the buffers of all members: left out"] += len(numbers - kept)
    return kept


def _tags(
    dumps: Sequence[Dump], members: Mapping[str, frozenset[int]], remarks: Counter[str]
) -> dict[tuple[str, int, int, int], tuple[int, int]]:
    """Return tag and bytes of each message that both ends issued, by group, sender, receiver and number."""
    sent: dict[tuple[str, int, int, int], int] = {}
    received: set[tuple[str, int, int, int]] = set()
    for dump in dumps:
        for entry in dump.entries:
            found = ends_of(entry, members)
            if found is None:
                continue
            kind, peer = found
            ends = (dump.rank, peer) if kind == "send" else (peer, dump.rank)
            key = (entry.process_group[0], *ends, entry.p2p_seq_id)
            if kind == "send":
                sent[key] = _bytes(entry.input_sizes, entry.input_dtypes)
            else:
                received.add(key)
    whole = sorted(sent.keys() & received)
    if lost := len(sent.keys() ^ received):
        remarks["messages without their other half: left out"] += lost
    return {key: (tag, sent[key]) for tag, key in enumerate(whole)}


def _own(
    dump: Dump,
    kept: Mapping[str, set[int]],
    tags: Mapping[tuple[str, int, int, int], tuple[int, int]],
    members: Mapping[str, frozenset[int]],
) -> Iterator[_Step]:
    """Yield the operations that a rank issued."""
    done: set[tuple[str, int]] = set()
    for entry in dump.entries:
        name = entry.process_group[0]
        if entry.is_p2p:
            found = ends_of(entry, members)
            if found is None:
                continue
            kind, peer = found
            ends = (dump.rank, peer) if kind == "send" else (peer, dump.rank)
            known = tags.get((name, *ends, entry.p2p_seq_id))
            if known is not None:
                yield _Step(entry, name, known[1], peer=peer, tag=known[0])
        elif entry.collective_seq_id in kept.get(name, ()) and (name, entry.collective_seq_id) not in done:
            done.add((name, entry.collective_seq_id))
            yield _Step(entry, name, _size(entry))


def _added(rank: int, late: Sequence[tuple[Entry, Operations]], remarks: Counter[str]) -> Iterator[_Step]:
    """Yield the operations to which a rank never came, in the order in which others issued them."""
    for entry, group in late:
        number = entry.collective_seq_id
        if rank in group.members and number not in group.of_rank.get(rank, {}):
            remarks["operations that a rank never came to: added at the end of its program"] += 1
            yield _Step(entry, group.name, _size(entry), is_added=True)


def _trace(
    dump: Dump,
    steps: Sequence[_Step],
    members: Mapping[str, frozenset[int]],
    world: int,
    remarks: Counter[str],
) -> Trace:
    """Return the program of a rank."""
    build, host, before = TraceBuilder(source=f"rank {dump.rank}"), list[int](), 0
    own = {name: sorted(of) for name, of in members.items() if dump.rank in of and len(of) < world}
    if own:
        build.process_groups(own)
    last: dict[str, int] = {}
    for step in steps:
        entry = step.entry
        if before and not step.is_added and entry.time_created_ns > before:
            gap = entry.time_created_ns - before
            host = [build.compute(GAP, nanos=gap, cpu=True, after=host, attributes={"gap": True})]
        if not step.is_added:
            before = entry.time_created_ns
        lane = f"message {step.peer}" if entry.is_p2p else step.group
        after = [*host, *([last[lane]] if lane in last else [])]
        if entry.is_p2p:
            last[lane] = _message(build, step, after)
            continue
        known = rules().operation(entry.operation)
        if known is None or known.collective is None:
            remarks[f"{entry.operation}: unknown, left out"] += 1
            continue
        group = step.group if step.group in own else ""
        size = None if known.collective == CollectiveKind.BARRIER else step.bytes
        last[lane] = build.collective(known.collective, size, group, name=entry.operation, after=after)
    return build.build()


def _message(build: TraceBuilder, step: _Step, after: Sequence[int]) -> int:
    if step.entry.operation.startswith("send"):
        return build.send(step.peer, step.bytes, step.tag, after=after)
    return build.receive(step.peer, step.bytes, step.tag, after=after)


def _size(entry: Entry) -> int:
    """Return the bytes that a rank puts in; of a scatter, those that it gets."""
    known = rules().operation(entry.operation)
    sizes = _bytes(entry.input_sizes, entry.input_dtypes), _bytes(entry.output_sizes, entry.output_dtypes)
    comes_out = known is not None and known.collective == CollectiveKind.SCATTER
    return (sizes[1] or sizes[0]) if comes_out else (sizes[0] or sizes[1])


def _bytes(shapes: Sequence[Sequence[int]], types: Sequence[str]) -> int:
    total = 0
    for at, shape in enumerate(shapes):
        kind = types[min(at, len(types) - 1)] if types else ""
        total += math.prod(max(extent, 0) for extent in shape) * rules().bytes_of(kind)
    return min(total, MOST_BYTES)
