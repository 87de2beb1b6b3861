"""What RoCE keeps: a pair for every message, and what each port of a host has to send."""

from __future__ import annotations

from et_sim.engine.containers import QUEUE
from et_sim.plan.tables import record

NO_CONTROL, DCQCN, HPCC, TIMELY, DCTCP = range(5)
MOST_HOPS = 5  # of which HPCC's headers have room for figures
TIMERS = 4  # of a pair: three of DCQCN's, and one until packets are sent again
ALPHA, DECREASE, INCREASE, AGAIN = range(TIMERS)

PAIR = record(
    ("sent", "i8"),  # bytes; set back when some are to be sent again
    ("highest", "i8"),  # bytes ever sent
    ("acknowledged", "i8"),
    ("expected", "i8"),  # the receiver's next byte
    ("refused_ps", "i8"),  # until when it does not say again that bytes are missing
    ("refused", "i8"),  # of which byte it said so
    ("next_ps", "i8"),  # when it may send again
    ("free_ps", "i8"),  # when its last packet had left
    ("window", "i8"),  # bytes; 0: there is none
    ("base_ps", "i8"),  # the time there and back without queues
    ("rate", "i8"),  # bits per second: of now, and of the line
    ("line_rate", "i8"),
    ("last_bytes", "i8"),  # on the wire, of the last packet
    ("next", "i4"),  # among the pairs of a port
    ("is_listed", "u1"),
    ("shrinks", "u1"),  # its window, with its rate
    ("pictured", "i8"),  # how far it was on the last picture, and what a period adds to that
    ("advance", "i8"),
    # Congestion control
    ("has_begun", "u1"),  # it has heard of congestion
    ("heard_for_alpha", "u1"),
    ("heard_for_rate", "u1"),
    ("is_reducing", "u1"),
    ("stage", "i4"),
    ("marks", "i8"),
    ("batch", "i8"),
    ("update_at", "i8"),  # the byte with whose acknowledgement the next round begins
    ("reduced_until", "i8"),
    ("target_rate", "i8"),  # DCQCN's; HPCC's and TIMELY's rate of the round
    ("alpha", "f8"),  # DCQCN's and DCTCP's; HPCC's utilisation
    ("last_rtt_ps", "i8"),
    ("rtt_difference", "f8"),
)
NIC = record(
    ("head", "i4"),  # pairs, in the order in which they began
    ("tail", "i4"),
    ("count", "i4"),
    ("last", "i4"),  # which of them sent last, by its number, and where it stands; NONE: to be looked up
    ("last_row", "i4"),
    ("answers", QUEUE),  # acknowledgements that wait
)
