"""What the credit model keeps: ports, virtual channels, flits, routers.

Rows of `PORT` are the links, then for each link the way into it from its NPU, then for each rank the way out
of the network. Every port but the last ones has channels at its end, in the router there.
"""

from __future__ import annotations

from et_sim.engine.containers import FREE
from et_sim.engine.state.records import MESSAGE_FIELDS
from et_sim.plan.tables import record

SETTINGS = record(
    ("free_flits", FREE),
    ("plans", "i8"),  # made so far: older ones are stale
    ("is_due", "i4"),  # the plan is to be made anew
    ("classes", "i4"),  # of channels: one more than ways cross datelines
    ("buffer", "i4"),  # flits in each
    ("flit", "i8"),  # bytes
    ("packet", "i8"),  # bytes
    ("pads", "i4"),  # the last packet of a message is as long as the others
    ("turns_of_flits", "i4"),  # a turn on a port lasts for one flit, not for a packet
    ("router_cycles", "i8"),
    ("cycle_ps", "i8"),
    ("units", "i8"),  # of time in a ns
    ("asked", "i4"),  # ports that are asked for in this cycle
    ("most_ports", "i8"),  # of a router
    ("arrived", "i8"),  # packets
)
PORT = record(
    ("source", "i4"),  # devices
    ("target", "i4"),
    ("speed", "i4"),
    ("cycles", "i8"),  # that a flit takes
    ("latency", "i8"),  # cycles
    ("free_at", "i8"),
    ("order", "i4"),  # where a way goes on over a port of a lower number, it crosses a dateline
    ("head", "i4"),  # channels at the end that hold a packet, in the order of their turns
    ("tail", "i4"),
    ("turn", "i4"),  # the port that has sent over this one last
    ("asked_channel", "i4"),  # that may send over it in this cycle
    ("asked_before", "i4"),  # the channel in front of this one
    ("asked_port", "i4"),
    ("next_asked", "i4"),
    ("is_starved", "i4"),  # something has waited for credit
    ("bytes", "i8"),
)
CHANNEL = record(
    ("port", "i4"),  # at whose end it is
    ("message", "i4"),
    ("datelines", "i4"),  # that its packet has crossed
    ("out", "i4"),  # the port over which its packet goes on
    ("out_channel", "i4"),
    ("stop", "i4"),  # the rank it is on its way to
    ("flits", "i4"),  # of its packet
    ("sent", "i4"),
    ("credits", "i4"),  # places for flits, as those who send to it know
    ("free_at", "i8"),  # when those know that it is free
    ("begins_at", "i8"),  # when a packet that comes from its NPU is there; NONE: flits come over a link
    ("next", "i4"),
)
FLIT = record(("at", "i8"), ("next", "i4"))  # when a flit may go on, and then, when its place is known free
MESSAGE = record(
    ("source", "i4"),
    ("link", "i4"),  # the first of its way
    ("packets", "i8"),
    ("to_start", "i8"),  # packets
    ("to_leave", "i8"),
    ("to_arrive", "i8"),
    ("begin_ns", "i8"),
    ("left_ns", "i8"),
    ("through", "i8"),  # the cause of its arrival
    ("origin", "i8"),  # of the event that sent it, to notice ties
    *MESSAGE_FIELDS,
)
