"""The tables of the record of causes (`causes`): causal events, and the causes stored with waiting rows.

They have the rows of the state's tables, and are empty in a run that is not recorded.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.compiled.tables_by_reference import Tables
from et_sim.plan.records import UNLIMITED, LoweredPlan, record, table

NONE = -1
MOST_QUEUE_SLOTS = 64  # places of a queue whose causes are stored
MOST_RECEIVES, STEP_KEYS_OF_A_TREE = 64, 4  # of a chunk, likewise
BUFFER = 1 << 16  # causal events, if no single event may need more


class CauseKind(IntEnum):
    """The kind of a causal event: first those in which time passes, then those at which others meet."""

    BEGIN = 0
    LATE_START = 1
    NODE = 2  # the duration of a node
    LATENCY = 3
    SERIALISATION = 4
    ENDPOINT = 5
    REDUCTION = 6
    BUS = 7
    SWITCH = 8  # the latency of one that reduces or copies
    SWITCH_RATE = 9  # the bytes it forwards at its rate
    NODE_START = 10
    NODE_END = 11
    CHUNK_QUEUED = 12
    CHUNK_START = 13
    PARENTS = 14  # of a node
    LANE = 15  # a node and its lane
    QUEUE_SLOT = 16  # a chunk and its place in a queue
    LINK = 17  # a message and its link, which was free
    LINK_QUEUE = 18  # and which was busy
    SERVER = 19  # a request and the remote memory, which was free
    SERVER_QUEUE = 20  # and which was busy
    BUS_SIDE = 21  # a transfer and its side of a bus
    BUS_QUEUE = 22  # which was busy
    RECEIVE = 23  # a message and its receive
    REQUEST = 24  # a message and the request for it (rendezvous)
    ENDPOINT_TRANSFERS = 25  # of a phase
    HALF = 26  # endpoint transfers of a direct exchange, and all messages of its first half
    CHUNKS = 27  # of a collective
    BARRIER = 28  # all actors must have done it
    BOUND = 29  # a message and all its bounds: links, the memory, switches
    CONTENTION = 30  # loss of a node to communication of its rank; time passes in it, and in the next ones
    WINDOW = 31  # a message was held back by its window or its rate
    PACKET_QUEUE = 32  # its packets waited for other packets
    RESENDING = 33  # until lost packets had been sent again
    LIBRARY = 34  # a collective library's own time, beside the wires


CAUSAL_EVENT = record(
    ("critical_parent", "i8"),  # the later one of those it needs; NONE: none
    ("other_parent", "i8"),  # another one that it needs
    ("start_ns", "i8"),  # when it had both
    ("end_ns", "i8"),
    ("node", "i4"),  # node that it belongs to; row of the state's nodes
    ("link", "i4"),  # LATENCY, SERIALISATION: row of the network's speeds; of switches: `switch_link`
    ("resource", "i4"),  # lane, link, server, queue, or side of a bus
    ("kind", "u1"),
)
CAUSE = record(("cause", "i8"), ("node", "i4"))
CHUNK_CAUSES = record(
    ("queued", "i8"),  # it joined its queue
    ("ready", "i8"),  # all of its transfers so far
    ("half", "i8"),  # the first half of a direct exchange had arrived
    ("ended", "i8"),  # first actor, where phases end together: all that have ended this one so far
)
REQUEST_CAUSES = record(
    ("last", "i8"),  # the last piece of a transfer is at its stage
    ("first_out", "i8"),  # the first piece has passed the units so far, and when; then the last one
    ("last_out", "i8"),
    ("first_ns", "i8"),
    ("last_ns", "i8"),
)
SIDE_CAUSES = record(("free", "i8"), ("processed", "i8"))  # when it last sent or received, and processed
EARLY = record(("head", "i4"), ("tail", "i4"))  # events that represent early messages or requests
QUEUE_CAUSES = record(("starts", "i8"), ("leaves", "i8"))
NOW = record(  # no field is called `base`, an attribute of NumPy's records, which uncompiled code gets
    ("cause", "i8"),  # the present causal event
    ("node", "i4"),
    ("made", "i8"),  # causal events in all
    ("flushed", "i8"),  # of these, no longer in the buffer
    ("after", "i8"),  # what the next event follows, and from when; NONE: the present one, from now
    ("after_ns", "i8"),
    ("kind", "i4"),  # use of the time until then; NONE: by the kind of event
    ("link", "i4"),
    ("resource", "i4"),
)


class Causes(Tables, Struct, frozen=True):
    """The stored causes; NONE: there was none."""

    on: Any  # [1 if causes are recorded, else 0]
    now: Any
    causal_events: Any  # a buffer that is emptied between events
    reserve: Any  # causal events that one event may need
    events: Any
    nodes: Any  # all parents so far
    lanes: Any  # per lane, when its places became free, in turn
    lane_uses: Any
    running: Any  # all chunks so far
    chunks: Any
    queues: Any
    issuers: Any  # per collective, where all actors start it together: all that have issued it so far
    posted: Any  # per chunk, its last receives by step key
    queue_slots: Any  # per queue, when its places became free, in turn
    channels: Any  # messages that came before their receives
    handshakes: Any  # requests that came before their messages
    unexpected: Any
    messages: Any  # under way
    links: Any  # and other resources of the network: became free
    servers: Any  # became free
    requests: Any
    units: Any  # end of all transfers given to them
    joints: Any  # all members so far
    custom: Any  # per chunk and node of its custom program: all parents so far
    bus_sides: Any
    bus_requests: Any
    joins: Any  # all parts so far
    switches: Any  # became free
    branches: Any  # likewise


POOLS = {  # tables that grow with a pool of the run
    "events": "events",
    "running": "running",
    "chunks": "chunks",
    "unexpected": "unexpected",
    "messages": "messages",
    "posted": "chunks",
    "custom": "custom_waiting",
    "bus_requests": "bus_requests",
    "joins": "joins",
}


def new_causes(plan: LoweredPlan, reserve: int, sizes: dict[str, int]) -> Causes:
    """Return tables for a run whose own have these sizes; `reserve` 0: nothing is recorded."""

    def causes_of(name: str) -> Any:
        return np.full(sizes[name] if reserve else 0, NONE, np.int64)

    queues, lanes = (sizes[name] if reserve else 0 for name in ("queues", "lanes"))
    now = table(NOW, 1)
    now["after"] = now["kind"] = now["node"] = now["link"] = now["resource"] = NONE
    causal_events = table(CAUSAL_EVENT, max(BUFFER, 2 * reserve) if reserve else 0)
    if reserve:  # causal event 0 is the beginning
        now["made"] = 1
        for name in ("critical_parent", "other_parent", "node", "link", "resource"):
            causal_events[name][0] = NONE
    return Causes(
        on=np.array([1 if reserve else 0], np.int64),
        now=now,
        causal_events=causal_events,
        reserve=np.array([reserve], np.int64),
        events=table(CAUSE, 0),
        nodes=causes_of("nodes"),
        lanes=np.full((lanes, _places_in_lanes(plan)), NONE, np.int64),
        lane_uses=table(QUEUE_CAUSES, lanes),
        running=np.full(0, NONE, np.int64),
        chunks=table(CHUNK_CAUSES, 0),
        queues=table(QUEUE_CAUSES, queues),
        issuers=causes_of("issuers"),
        posted=np.full((0, _receives_at_a_time(plan)), NONE, np.int64),
        queue_slots=np.full((queues, min(plan.running_limit, MOST_QUEUE_SLOTS)), NONE, np.int64),
        channels=_early(sizes["channels"] if reserve else 0),
        handshakes=_early(sizes["handshakes"] if reserve else 0),
        unexpected=table(CAUSE, 0),
        messages=table(CAUSE, 0),
        links=causes_of("links"),
        servers=causes_of("servers"),
        requests=table(REQUEST_CAUSES, sizes["requests"] if reserve else 0),
        units=causes_of("units"),
        joints=causes_of("joints"),
        custom=np.full((0, plan.largest_custom), NONE, np.int64),
        bus_sides=_sides(sizes["bus_sides"] if reserve else 0),
        bus_requests=table(CAUSE, 0),
        joins=np.full(0, NONE, np.int64),
        switches=causes_of("switches"),
        branches=causes_of("branches"),
    )


def _places_in_lanes(plan: LoweredPlan) -> int:
    """Return the most places of a lane whose causes are stored."""
    limited = plan.lane_limits[plan.lane_limits < UNLIMITED]
    return min(int(limited.max(initial=1)), MOST_QUEUE_SLOTS)


def _receives_at_a_time(plan: LoweredPlan) -> int:
    """Return the number of receives of a phase to store: those that may be open, or the keys of a tree."""
    sends = plan.programs["sends"][plan.programs["own_steps"] > 0]
    most = max(int(plan.programs["start_transfers"].max(initial=0)), int(sends.max(initial=0)))
    return min(max(most, STEP_KEYS_OF_A_TREE), MOST_RECEIVES)


def _sides(number: int) -> Any:
    made = table(SIDE_CAUSES, number)
    made["free"] = made["processed"] = NONE
    return made


def _early(fifos: int) -> Any:
    made = table(EARLY, fifos)
    made["head"] = made["tail"] = NONE
    return made
