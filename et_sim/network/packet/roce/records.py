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
    ("error_ps", "f8"),  # of its end, if its packets were skipped
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
    ("target", "i4"),  # of its last message, the size, how many were like it before, and since when (`known`)
    ("size", "i8"),
    ("like", "i4"),
    ("like_ps", "i8"),
    ("answers", QUEUE),  # acknowledgements that wait
)
KINDS = 4096  # of messages, of which measurements are stored
KIND = record(  # of messages, by the size and the way (`known`)
    ("key", "i8"),
    ("count", "i8"),  # of measurements
    ("firsts", "i8"),  # those from the begin of a message on: the sum, the least and the most time
    ("sum_ps", "f8"),
    ("least_ps", "i8"),
    ("most_ps", "i8"),
    ("sum_packet_ps", "f8"),  # the same of the time of a packet
    ("least_packet_ps", "f8"),
    ("most_packet_ps", "f8"),
    ("least_answers", "f8"),  # and of the messages whose acknowledgements cross the way
    ("most_answers", "f8"),
)
SHARE = record(  # a port, for the messages that cross it (`known`)
    ("load", "i8"),  # bits per second: the sum of the rates of their hosts
    ("until_ps", "i8"),  # when the last byte of those that have left passes
    ("answers", "i8"),  # messages whose acknowledgements cross it, and their number times their time
    ("answers_ps", "i8"),
    ("since_ps", "i8"),  # of that number
)
WATCH = record(  # a message, until it is known and then (`known`)
    ("kind", "i4"),
    ("key", "i8"),  # of its kind, which another one may have replaced
    ("is_known", "u1"),
    ("is_unknown", "u1"),  # its kind was not known when it began
    ("error_ps", "f8"),  # of the foretold time
    ("is_counted", "u1"),  # in the loads of ports
    ("is_answered", "u1"),  # in the acknowledgements that cross ports
    ("mark", "i8"),  # the packets that are there when it is measured; NEVER: it is not
    ("since_ps", "i8"),  # begin of the measurement
    ("half_ps", "i8"),  # when half of it was done, and the bytes then
    ("half_bytes", "i8"),
    ("met_ps", "i8"),  # for how long its first bytes may meet the last ones of others
    ("answers_before_ps", "i8"),  # acknowledgements that crossed its way before it began
    ("left_ps", "i8"),  # when its last byte leaves and arrives
    ("arrives_ps", "i8"),
    ("packet_ps", "f8"),
)
