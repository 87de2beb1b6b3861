"""The tables of traffic on the network (`traffic`): messages, and busy times of links in slices of time.

They are empty in a run that does not record them. There are as many slices of every link for runs of any
length: when a run outlasts them, neighbours are merged, so that each becomes twice as wide.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.compiled.tables_by_reference import Tables
from et_sim.plan.records import record, table

LOGGED_AT_ONCE = 1 << 16
MOST_SLICES, FEWEST_SLICES = 128, 4  # of a link
SLICES_IN_ALL = 1 << 20
SHIFT, PER_LINK, BITS = range(3)  # of `Traffic.grid`


class Sent(IntEnum):
    """The origin of a message."""

    SEND = 0  # of the trace
    COLLECTIVE = 1
    CUSTOM = 2  # a custom collective
    REQUEST = 3  # the request of another message (rendezvous)
    TO_SWITCH = 4  # a rank's part of a collective in the network
    FROM_SWITCH = 5  # a switch's message to a rank
    BETWEEN_SWITCHES = 6


MESSAGE_LOG = record(
    ("actor", "i4"),  # sender
    ("node", "i4"),  # of the actor's template
    ("peer", "i4"),  # receiving actor
    ("chunk", "i4"),
    ("phase", "i4"),
    ("step", "i4"),
    ("dimension", "i4"),
    ("kind", "i4"),
    ("bytes", "i8"),
    ("ready_ns", "i8"),  # its sender is ready
    ("sent_ns", "i8"),  # and has received its request, if there must be one
    ("start_ns", "i8"),  # the first link takes it
    ("left_ns", "i8"),  # the last byte has left its sender
    ("arrived_ns", "i8"),
    ("waited_ns", "i8"),  # for links
)
SLICE = record(
    ("busy_ns", "i8"),
    ("bytes", "i8"),  # carried
    ("messages", "i8"),
    ("waited_ns", "i8"),  # by messages for the link, summed
    ("longest_ns", "i8"),  # wait of a message that begins in it
    ("waiting", "i8"),  # messages, at most at a time
)
LINK_QUEUE = record(("waiting", "i8"), ("since_ns", "i8"))  # messages that wait for a link, and since when


class Traffic(Tables, Struct, frozen=True):
    """The records of messages and links."""

    on: Any  # [1 if anything is recorded, else 0]
    now: Any  # one MESSAGE_LOG: the next message
    copies: Any  # [number of such messages, if it is one between switches]
    log: Any  # a buffer that is emptied between events; empty if messages are not logged
    logged: Any  # rows in the log
    messages: Any  # MESSAGE_LOG beside the run's messages under way
    joined: Any  # per message, when it joined the queue of a link
    unexpected: Any  # MESSAGE_LOG beside unexpected messages: offers
    held: Any  # per event, when it was made: messages that wait for their request
    slices: Any  # of every link; empty if links are not recorded
    link_queues: Any  # per link
    grid: Any  # [binary logarithm of a slice's width, slices per link, binary places of time]


POOLS = {"messages": "messages", "joined": "messages", "unexpected": "unexpected", "held": "events"}


def new_traffic(per_event: int, resources: int, *, links: bool, bits: int) -> Traffic:
    """Return tables for a run; up to `per_event` messages of one event are logged (0: none are).

    With `links`, the busy times of the network's `resources` are recorded. Time has `bits` binary places.
    """
    count = resources if links else 0
    per_link = max(FEWEST_SLICES, min(MOST_SLICES, 1 << (SLICES_IN_ALL // max(count, 1)).bit_length() >> 1))
    return Traffic(
        on=np.array([1 if per_event or links else 0], np.int64),
        now=table(MESSAGE_LOG, 1),
        copies=np.ones(1, np.int64),
        log=table(MESSAGE_LOG, per_event and max(LOGGED_AT_ONCE, 2 * per_event)),
        logged=np.zeros(1, np.int64),
        messages=table(MESSAGE_LOG, 0),
        joined=np.zeros(0, np.int64),
        unexpected=table(MESSAGE_LOG, 0),
        held=np.zeros(0, np.int64),
        slices=table(SLICE, count * per_link),
        link_queues=table(LINK_QUEUE, count),
        grid=np.array([bits, per_link, bits], np.int64),
    )
