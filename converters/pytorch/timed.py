"""The conversion of a timeline, with an execution trace if there is one."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from msgspec.structs import replace

from converters.pytorch.calls import Calls, DeviceWork, Recording, device_work, host_calls
from converters.pytorch.carriers import Carriers, find_carriers
from converters.pytorch.columns import ABSENT, NONE, DeviceTrace, EventKind, HostTrace
from converters.pytorch.costs import WorkCosts, find_costs
from converters.pytorch.data_links import link_data
from converters.pytorch.graph import Column, Draft, EventTally, Link, RecordedGraph, RunPart
from converters.pytorch.groups import RankGroups, collect_groups
from converters.pytorch.handoffs import link_groups, link_handoffs, link_workers
from converters.pytorch.linking import HostCallPairs, doubts, link, refuse_unrelated
from converters.pytorch.memory import recorded_memory
from converters.pytorch.rank import ConvertedRank, Lookup, row_lanes, taken
from converters.pytorch.streams import add_streams
from converters.pytorch.threads import STEP, add_threads
from converters.pytorch.waits import RecordedWaits, find_waits
from et_sim.basics.errors import TraceError

_Spans = TypeVar("_Spans", Calls, DeviceWork)
WHOLE = 0.8  # share of the timeline's operators that must be linked for all of it to be converted


def convert_timed(
    device: DeviceTrace,
    host: HostTrace | None,
    without: frozenset[Link] = frozenset(),
    *,
    force: bool = False,
) -> ConvertedRank:
    """Link the recordings, order and connect their nodes; unrelated recordings are refused, unless forced."""
    device, calls, work = _from_its_beginning(device)
    links = link(host, device, calls) if host is not None else None
    tally = EventTally()
    if host is not None and links is not None:
        all_doubts = list(doubts(host, device, calls, links))
        if not force:
            refuse_unrelated(host, device, links, all_doubts)
        for doubt in all_doubts:
            tally.count(f"converted though the recordings seem not to belong together: {doubt}")
    host_of_call = links.host_of_call if links is not None else np.full(len(calls), NONE, np.int32)
    given = Recording(device, host, calls, work, host_of_call)
    if links is not None and links.linked and links.device_rate < WHOLE:
        given, links = _within(given, links, tally)
    return _connected(given, links, collect_groups(host, device, tally), without)


def _connected(
    given: Recording, links: HostCallPairs | None, groups: RankGroups, without: frozenset[Link]
) -> ConvertedRank:
    """Find the dependencies and the attributes of all nodes."""
    tally = groups.tally
    carriers = find_carriers(given, groups)
    given = replace(given, work=carriers.work)
    waits = find_waits(given, tally)
    graph, described = _graph(given, carriers, waits, groups, without)
    tally.count("calls that end after the call they begin in", given.calls.outlasting)
    converted = _columns(given, carriers, find_costs(given, tally), graph, groups)
    return replace(converted, links=links, groups=described, begin_ns=given.device.base_ns)


def _nothing_timed(device: DeviceTrace) -> TraceError:
    """Return the error for a timeline without content."""
    return TraceError(
        "holds no operator, no call of a runtime and no kernel",
        place=device.path,
        remedy="record with torch.profiler, activities CPU and CUDA",
    )


def _from_its_beginning(device: DeviceTrace) -> tuple[DeviceTrace, Calls, DeviceWork]:
    """Return the timeline with times from its first call or work on, with its calls and work."""
    timed = [int(kind) for kind in EventKind if kind not in (EventKind.DEVICE_ANNOTATION, EventKind.OVERHEAD)]
    rows = np.isin(device.kind, timed)
    if not rows.any():
        raise _nothing_timed(device)
    device = _shifted(device, int(device.ts_ns[rows].min()))
    calls, work = host_calls(device, device_work(device))
    if not len(calls) and not len(work):
        raise _nothing_timed(device)
    shift = min((int(columns.start_ns.min()) for columns in (calls, work) if len(columns)), default=0)
    return _shifted(device, shift), _shifted_spans(calls, shift), _shifted_spans(work, shift)


def _shifted(device: DeviceTrace, by_ns: int) -> DeviceTrace:
    """Return the timeline with times relative to a later moment."""
    if not by_ns:
        return device
    memory = replace(device.memory, ts_ns=device.memory.ts_ns - by_ns)
    return replace(device, ts_ns=device.ts_ns - by_ns, base_ns=device.base_ns + by_ns, memory=memory)


def _shifted_spans(spans: _Spans, by_ns: int) -> _Spans:
    return replace(spans, start_ns=spans.start_ns - by_ns, end_ns=spans.end_ns - by_ns)


def _within(given: Recording, links: HostCallPairs, tally: EventTally) -> tuple[Recording, HostCallPairs]:
    """Return the part that the execution trace covers, if the timeline is much longer."""
    calls, work, linked = given.calls, given.work, links.host_of_call != NONE
    low, high = int(calls.start_ns[linked].min()), int(calls.end_ns[linked].max())
    keep = (calls.start_ns >= low) & (calls.end_ns <= high)
    launched = (work.call != NONE) & keep[work.call]
    remark = "calls of the timeline outside of the execution trace's span"
    tally.count(remark, int((~keep).sum()))
    tally.count("work of devices that calls outside of it launched", int((~launched).sum()))
    number = np.append(np.cumsum(keep) - 1, NONE)  # the last entry belongs to NONE
    number[:-1][~keep] = NONE
    kept = Calls(**{name: getattr(calls, name)[keep] for name in Calls.__struct_fields__})
    kept = replace(_shifted_spans(kept, low), parent=number[kept.parent])
    rest = DeviceWork(**{name: getattr(work, name)[launched] for name in DeviceWork.__struct_fields__})
    rest = replace(_shifted_spans(rest, low), call=number[rest.call])
    operators = int((kept.is_operator | kept.is_annotation).sum())
    inside = replace(links, host_of_call=links.host_of_call[keep], device_operators=operators)
    return Recording(_shifted(given.device, low), given.host, kept, rest, inside.host_of_call), inside


def _graph(
    given: Recording, carriers: Carriers, waits: RecordedWaits, groups: RankGroups, without: frozenset[Link]
) -> tuple[RecordedGraph, dict[str, tuple[int, ...]]]:
    calls, work = given.calls, given.work
    draft = Draft(groups.tally)
    threads = add_threads(draft, calls, work, waits.latencies.arrival_ns, waits.until_ns)
    on_host = draft.size
    link_handoffs(draft, given.device, calls, threads)
    base = (len(calls) + 1) * STEP
    communicates = carriers.of_work != NONE
    communicates[carriers.by_worker] = False  # a worker may run several at once
    streams = add_streams(draft, given, threads, waits.awaited, waits.latencies, communicates, base)
    link_workers(draft, threads, calls, work, carriers.by_worker, streams.node)
    link_groups(draft, work, carriers.by_worker, carriers.group_of_work, streams.node)
    draft.link(Link.SYNC, streams.node[waits.host_after[0]], waits.host_after[1])
    link_data(draft, given, streams.node, threads)
    position = np.empty(on_host + len(streams.position), np.int32)
    position[threads.node] = threads.position
    position[on_host:] = streams.position
    del threads, streams  # large, and no longer needed
    described = groups.described()
    if described:
        draft.add(RunPart.METADATA, np.zeros(1, np.int64), np.zeros(1, np.int64))
        position = np.append(position, np.int32(-STEP))
    return draft.finished(without, position), described


def _columns(
    given: Recording, carriers: Carriers, costs: WorkCosts, graph: RecordedGraph, groups: RankGroups
) -> ConvertedRank:
    device, host, calls, work = given.device, given.host, given.calls, given.work
    host_of_call = given.host_of_call
    orphans = (host_of_call == NONE) & (calls.is_operator | calls.is_annotation)
    call, of_work = graph.call, graph.work
    operator = costs.operator
    event = Lookup(graph.role, (call, calls.row), (of_work, work.row))
    return ConvertedRank(
        graph=graph,
        host=host,
        device=device,
        links=None,
        is_timed=True,
        rank=groups.rank,
        groups={},
        communications=carriers.communications,
        communication=Lookup(graph.role, (call, carriers.of_call), (of_work, carriers.of_work))[:].astype(
            np.int32
        ),
        event=event,
        operator_event=Lookup(graph.role, (call, calls.row), (of_work, taken(calls.row, operator))),
        described_by=Lookup(graph.role, (call, host_of_call), (of_work, taken(host_of_call, operator))),
        numbers=_numbers(given, costs, graph),
        tally=groups.tally,
        measured_ns=int(graph.end_ns.max(initial=0)),
        begin_ns=0,
        described_as=_about(device, host, groups),
        device_orphans=calls.row[orphans],
        left_out_events=_left_out(device, calls, work),
        words={
            "layer_shape": Lookup(graph.role, (of_work, costs.shape)),
            "dtype": Lookup(graph.role, (of_work, costs.datatype)),
        },
        texts=costs.texts,
        memory=recorded_memory(graph, device, event),
    )


def _numbers(given: Recording, costs: WorkCosts, graph: RecordedGraph) -> dict[str, Lookup]:
    """Return the attributes that are numbers."""
    device, host, calls, work = given.device, given.host, given.calls, given.work
    role, call, of_work = graph.role, graph.call, graph.work
    held = calls.is_annotation.copy()
    held[calls.parent[calls.parent != NONE]] = True
    if host is not None:
        record_function = Lookup(role, (call, given.host_of_call)).then(host.record_function)
    else:
        record_function = Lookup(role, (call, calls.row), (of_work, work.row)).then(device.record_function)
    event = Lookup(role, (call, calls.row), (of_work, work.row))
    lane = Lookup(role, (np.arange(len(role)), row_lanes(graph, device, event)))
    return {
        "num_ops": Lookup(role, (of_work, _with_zero(costs))),
        "tensor_size": Lookup(role, (of_work, costs.tensor_bytes)),
        "stream": lane.then(_of_lanes(device, "stream")),
        "tid": lane.then(np.where(_of_lanes(device, "stream") < 0, _of_lanes(device, "thread"), NONE)),
        "rf_id": record_function,
        "seq_id": Lookup(role, (call, calls.row)).then(device.sequence),
        "inclusive_ns": Lookup(role, (call, np.where(held, calls.end_ns - calls.start_ns, NONE))),
    }


def _left_out(device: DeviceTrace, calls: Calls, work: DeviceWork) -> dict[str, int]:
    """Return the number of events that are no nodes, by reason."""
    is_none = np.ones(len(device), np.bool_)
    is_none[calls.row] = is_none[work.row] = False
    reasons = {
        EventKind.LAUNCH: "calls of the runtime that neither launch nor wait (time of their operators)",
        EventKind.SYNC: "synchronisation events (dependencies)",
        EventKind.DEVICE_ANNOTATION: "annotations of devices (extents of work)",
        EventKind.OVERHEAD: "events of the profiler itself",
    }
    counts = {reason: int((is_none & (device.kind == kind)).sum()) for kind, reason in reasons.items()}
    return {reason: count for reason, count in counts.items() if count}


def _with_zero(costs: WorkCosts) -> Column:
    """Return zero operations if only the bytes are known, so that a roofline model uses the bytes."""
    only_bytes = (costs.operations == NONE) & (costs.tensor_bytes >= 0)
    operations: Column = np.where(only_bytes, 0, costs.operations)
    return operations


def _of_lanes(device: DeviceTrace, attribute: str) -> Column:
    return np.array([getattr(lane, attribute) for lane in device.lanes], np.int64)


def _about(device: DeviceTrace, host: HostTrace | None, groups: RankGroups) -> dict[str, str]:
    """Return the metadata of the written file."""
    facts = {
        "converter": "et-convert pytorch",
        "rank": str(groups.rank) if groups.rank != ABSENT else "",
        "world_size": str(groups.world) if groups.world > 0 else "",
        "backend": device.backend,
        "schema": host.schema if host is not None else "",
        "device": str(device.device_properties[0].get("name", "")) if device.device_properties else "",
    }
    return {name: value for name, value in facts.items() if value}
