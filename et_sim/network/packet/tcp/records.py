"""Records of TCP: a connection per ordered pair of ranks or per message, and the messages on it.

A connection has the number of its message's flow, or of a flow without a message. It is a stream of bytes,
and messages are parts of it. Positions are bytes from its beginning.
"""

from __future__ import annotations

from et_sim.engine.containers import QUEUE
from et_sim.plan.records import record

CLOSED, OPENING, OPEN = range(3)
# States of a sender: nothing is missing, something may be, it recovers, or a timeout has passed.
SMOOTH, DISORDER, RECOVERY, LOSS = range(4)
TIMERS = 5  # of a connection
RESEND, DELAYED, DUE, MORE, TELL = range(TIMERS)
OPENS, OPENED = -1, -2  # positions in packets of the handshake

CONNECTION = record(
    ("stage", "u1"),
    ("state", "u1"),
    ("is_owned", "u1"),  # belongs to one message
    ("is_queued", "u1"),  # has packets in the turns of its host
    ("next", "i4"),  # among the connections of its host
    ("chain", "i4"),  # in a bucket
    # Its messages in order
    ("first", "i4"),  # the first that has not arrived or, if required, is not acknowledged
    ("first_begin", "i8"),  # where its bytes begin
    ("last", "i4"),
    ("leaves", "i4"),  # the first one whose last byte was never sent
    ("left_to", "i8"),  # the byte behind the last one that was sent
    ("waits", "i4"),  # the first one that is not due
    ("end", "i8"),  # of the bytes that may be sent
    ("promised", "i8"),  # includes messages that are not due
    # The sender
    ("acknowledged", "i8"),
    ("sent", "i8"),  # the next new byte; without SACK, reset to send all again
    ("highest", "i8"),  # bytes ever sent
    ("window", "i8"),  # congestion window
    ("threshold", "i8"),  # of slow start
    ("peer_window", "i8"),
    ("rest", "i8"),  # acknowledged bytes that do not fill a packet
    ("duplicates", "i4"),
    ("recover", "i8"),  # the end of the bytes that recovery covers
    ("recovers", "u1"),
    ("is_partial", "u1"),  # the timer was restarted in this recovery
    ("lost_to", "i8"),  # unreported bytes below this are lost
    ("again", "i8"),  # and below this were sent again
    ("ranges", "i4"),  # bytes reported as arrived (SACK)
    ("known", "i8"),  # their number
    ("delivered", "i8"),  # proportional rate reduction: since recovery began
    ("mended", "i8"),  # sent since then
    ("flight", "i8"),  # in flight when it began
    ("reduced_to", "i8"),  # no second reduction for marks up to there
    ("rtt_ps", "i8"),  # smoothed
    ("deviation_ps", "i8"),
    ("timeout_ps", "i8"),
    ("deadline_ps", "i8"),  # time of retransmission; NEVER: nothing is outstanding
    # Packets that wait at the host, if connections take turns
    ("head", "i4"),
    ("tail", "i4"),
    # The receiver
    ("expected", "i8"),
    ("tried", "i8"),  # the same at the last timeout while the way back was closed
    ("held", "i4"),  # ranges beyond that have arrived
    ("held_count", "i4"),
    ("unanswered", "i4"),  # packets
    ("unanswered_ps", "i8"),  # when the last of them was sent
    ("unanswered_mark", "u1"),
)
# A message, by its flow.
PIECE = record(
    ("connection", "i4"),
    ("next", "i4"),  # on its connection
    ("end", "i8"),
    ("due_ps", "i8"),
)
RANGE = record(("begin", "i8"), ("end", "i8"), ("next", "i4"))
NIC = record(
    ("head", "i4"),  # packets that wait, or connections that take turns
    ("tail", "i4"),
    ("answers", QUEUE),  # acknowledgements, if connections take turns
)
HOST = record(("copied_ps", "i8"), ("received_ps", "i8"))  # ends of a rank's copies
BLOCK = record(("begin", "i8"), ("end", "i8"))  # a range beyond a hole, in an acknowledgement
