"""Records of RoCE: a pair for every message, and a NIC for every port of a host."""

from __future__ import annotations

from et_sim.engine.containers import QUEUE
from et_sim.plan.records import record

TIMERS = 4  # of a pair: three of its congestion control, and one for retransmission
AGAIN = TIMERS - 1

PAIR = record(
    ("sent", "i8"),  # bytes; reset when some are sent again
    ("highest", "i8"),  # bytes ever sent
    ("acknowledged", "i8"),
    ("error_ps", "f8"),  # of its end, by steady phases that were skipped
    ("expected", "i8"),  # the receiver's next byte
    ("refused_ps", "i8"),  # until when it does not report missing bytes again
    ("refused", "i8"),  # the missing byte that it reported
    ("tried", "i8"),  # `expected` at the last timeout while the way back was closed
    ("next_ps", "i8"),  # when it may send again
    ("free_ps", "i8"),  # when its last packet had left
    ("window", "i8"),  # bytes; 0: there is none
    ("base_ps", "i8"),  # the round-trip time without queues
    ("rate", "i8"),  # bits per second: the present rate; the line rate follows
    ("line_rate", "i8"),
    ("last_bytes", "i8"),  # on the wire, of the last packet
    ("next", "i4"),  # among the pairs of a port
    ("is_listed", "u1"),
    ("tries", "i4"),  # where links fail: timeouts since the last acknowledgement
    ("shrinks", "u1"),  # the window shrinks with the rate
    ("pictured", "i8"),  # its position in the last snapshot; its advance in a period follows
    ("advance", "i8"),
)
NIC = record(
    ("head", "i4"),  # pairs in the order of their beginning
    ("tail", "i4"),
    ("count", "i4"),
    ("last", "i4"),  # the position of the pair that sent last, and its row; NONE: to be searched
    ("last_row", "i4"),
    ("answers", QUEUE),  # acknowledgements that wait
)
WATCH = record(  # a message in windows
    ("begin_bytes", "i8"),  # acknowledged when the first one began
    ("count", "i8"),  # of acknowledgements in the present one
    ("weights", "f8"),  # their sum, and the weighted sums of bytes and times since the first window
    ("sum_bytes", "f8"),
    ("sum_ps", "f8"),
    ("bytes", "f8"),  # the means in the last one
    ("ps", "f8"),
    ("first_bytes", "f8"),  # and in the first one
    ("first_ps", "f8"),
    ("sum_flight", "f8"),  # that of bytes in flight, and their least and largest mean in a window
    ("least_flight", "f8"),
    ("most_flight", "f8"),
    ("slowest", "f8"),  # rates from one to the next, in bytes per picosecond
    ("fastest", "f8"),
)
