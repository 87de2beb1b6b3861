"""What the LogGOPS model keeps of processors, NICs, nodes, channels, and of operations that wait for them."""

from __future__ import annotations

from et_sim.engine.state.records import MESSAGE_FIELDS
from et_sim.plan.tables import record

CONSTANTS = record(  # ns, and ns per byte after the first
    ("latency", "i8"),  # L
    ("overhead", "i8"),  # o
    ("gap", "i8"),  # g
    ("gap_per_byte", "f8"),  # G
    ("overhead_per_byte", "i8"),  # O
    ("most_eager", "i8"),  # S, in bytes
)
STATE = record(
    ("waiting", "i4"),  # operations in the heap
    ("planned", "i4"),  # how often the next one has been put on the calendar
    ("planned_ns", "i8"),  # for when; NONE: it is not there
)
RANK = record(  # until when they are busy
    ("processor_ns", "i8"),
    ("sending_ns", "i8"),
    ("receiving_ns", "i8"),
)
NODE = record(
    ("parents", "i4"),  # of which the end is known
    ("ready_ns", "i8"),  # the latest of these ends
    ("operation", "i4"),  # which it has been given; NONE: it has none yet
)
CHANNEL = record(
    ("open", "i4"),  # receives that were posted and have met no message
    ("head", "i4"),  # these, and those about to be posted, in the order of the rank's program
    ("tail", "i4"),
)
EARLY = record(("head", "i4"), ("tail", "i4"))  # by channel: messages before their receives are posted
PLACE = record(("goes_on_ns", "i8"), ("operation", "i4"))  # of the heap
OPERATION = record(  # computing, or a message or its receive on its way through processors and NICs
    ("stage", "i4"),
    ("source", "i4"),
    ("receive", "i4"),  # which a message has met, while it waits for the processor
    ("uses", "i4"),  # of a receive: the heap and the channel
    *MESSAGE_FIELDS,
)
