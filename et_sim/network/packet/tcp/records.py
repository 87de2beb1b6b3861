"""What TCP keeps: a connection for every ordered pair of ranks, or for every message, and the messages on it.

A connection has the number of a flow: of its message, or of one that has none. It is a stream of bytes, of
which each message is a part. Positions are counted in bytes from its beginning.
"""

from __future__ import annotations

from et_sim.engine.containers import QUEUE
from et_sim.plan.records import record

NEWRENO, RENO, CUBIC, DCTCP = range(4)
CLOSED, OPENING, OPEN = range(3)
# How a sender fares: nothing is missing, something may be, it recovers, or it has waited in vain.
SMOOTH, DISORDER, RECOVERY, LOSS = range(4)
TIMERS = 5  # of a connection
RESEND, DELAYED, DUE, MORE, TELL = range(TIMERS)
OPENS, OPENED = -1, -2  # positions that packets of the handshake have

CONNECTION = record(
    ("stage", "u1"),
    ("state", "u1"),
    ("is_owned", "u1"),  # by one message
    ("is_queued", "u1"),  # at its host, with packets that wait for their turn
    ("next", "i4"),  # among the connections of a host that take turns
    ("chain", "i4"),  # of a bucket
    # The messages on it, in their order
    ("first", "i4"),  # that is not at its target, or, if that matters, not acknowledged
    ("first_begin", "i8"),  # where its bytes begin
    ("last", "i4"),
    ("leaves", "i4"),  # the first one whose last byte was never sent
    ("left_to", "i8"),  # the byte behind the last one that was sent
    ("waits", "i4"),  # the first one that is not due
    ("end", "i8"),  # of the bytes that may be sent
    ("promised", "i8"),  # with those of messages that are not due
    # The sender
    ("acknowledged", "i8"),
    ("sent", "i8"),  # the next new byte; without SACK, set back when all is to be sent again
    ("highest", "i8"),  # bytes ever sent
    ("window", "i8"),  # congestion window
    ("threshold", "i8"),  # of slow start
    ("peer_window", "i8"),
    ("rest", "i8"),  # bytes that were acknowledged and make no full packet
    ("duplicates", "i4"),
    ("recover", "i8"),  # up to where a loss is being mended
    ("recovers", "u1"),
    ("is_partial", "u1"),  # the timer was set anew in this recovery
    ("lost_to", "i8"),  # what is not known to have arrived below this is lost
    ("again", "i8"),  # and has been sent again below this
    ("ranges", "i4"),  # bytes known to have arrived (SACK)
    ("known", "i8"),  # how many that are
    ("delivered", "i8"),  # proportional rate reduction: since recovery began
    ("mended", "i8"),  # sent since then
    ("flight", "i8"),  # under way when it began
    ("reduced_to", "i8"),  # no second reduction for marks up to there
    ("rtt_ps", "i8"),  # smoothed
    ("deviation_ps", "i8"),
    ("timeout_ps", "i8"),
    ("deadline_ps", "i8"),  # when to send again; NEVER: nothing to wait for
    # Packets that wait at the host, if connections take turns
    ("head", "i4"),
    ("tail", "i4"),
    # The receiver
    ("expected", "i8"),
    ("held", "i4"),  # ranges beyond that have arrived
    ("held_count", "i4"),
    ("unanswered", "i4"),  # packets
    ("unanswered_ps", "i8"),  # when the last of them was sent
    ("unanswered_mark", "u1"),
    # Congestion control
    ("count", "i8"),
    ("alpha", "f8"),  # DCTCP's
    ("batch", "i8"),
    ("marked", "i8"),
    ("round_to", "i8"),
    ("largest", "i8"),  # CUBIC's, in packets: the window at the last loss, the target
    ("origin", "i8"),
    ("plateau_s", "f8"),
    ("epoch_ps", "i8"),
    ("least_rtt_ps", "i8"),
    ("round_rtt_ps", "i8"),
    ("round_ps", "i8"),
    ("train_ps", "i8"),
    ("samples", "i4"),
    ("is_past_slow_start", "u1"),
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
HOST = record(("copied_ps", "i8"), ("received_ps", "i8"))  # until when a rank copies what it sends, and gets
BLOCK = record(("begin", "i8"), ("end", "i8"))  # what an acknowledgement says has arrived beyond
