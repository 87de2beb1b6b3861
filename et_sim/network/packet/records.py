"""Records of the packet model: packets, ports, devices, flows, and the state of the kernel.

A port is a directed link with the state of its sending end; both have the same number. Times are picoseconds.
Events have an order besides their time: the number of events that were planned before them.
"""

from __future__ import annotations

from et_sim.engine.containers import FREE, QUEUE
from et_sim.engine.state.records import MESSAGE_FIELDS
from et_sim.network.fabric import WAY_FIELDS
from et_sim.plan.records import lines, record

DATA, ACKNOWLEDGEMENT, NEGATIVE, PAUSE, RESUME = range(5)  # kinds of packets
NEVER = 2**63 - 1

STATE = record(
    ("now_ps", "i8"),
    ("now_order", "i8"),  # of the present event
    ("order", "i8"),  # of the next event that is planned
    ("current", "i4"),  # the source of the present event, whose place on the calendar is set afterwards
    ("moving", "i4"),  # entries of the kernel's calendar that may move packets
    ("free_packets", FREE),
    ("free_flows", FREE),
    ("head", "i4"),  # flows that begin after all other events of this instant
    ("tail", "i4"),
    ("is_due", "i4"),  # their beginning is scheduled
    ("arrived", "i4"),  # a flow whose message has arrived, to be reported to the engine
    ("left", "i4"),  # the same for one that has left
    ("planned_ns", "i8"),  # when the kernel runs next; NONE: it has no events
    ("plans", "i4"),  # how often that was planned
    ("random", "i8"),  # numbers drawn
    ("has_died", "i4"),  # a link has died
    ("searched_ps", "i8"),  # the time of the last search for ports that stay paused
    # Snapshots for repeats
    ("until_picture", "i8"),  # events until the next one is taken; 0: none is
    ("patience", "i8"),  # events between snapshots
    ("anchor", "i4"),  # the port at whose event the last one was taken; NONE: there is none
    ("picture_ps", "i8"),  # the time of the last one, and the counts then
    ("picture_order", "i8"),
    ("picture_sent", "i8"),
    ("picture_returned", "i8"),
    ("skipped", "i8"),  # packets that were not simulated one by one
    ("logs", "i4"),  # sendings of ports are recorded
    ("logged", "i4"),
    ("sent", "i8"),  # packets with data, retransmitted ones included
    ("resent", "i8"),  # the number of these
    ("timeouts", "i8"),  # senders that waited in vain for an acknowledgement
    ("lost", "i8"),
    ("returned", "i8"),  # acknowledgements
)
STEADY = record(  # messages that are known (`roce.known`)
    ("measures", "u1"),  # messages are measured
    ("overloads", "i8"),  # ports whose messages could send more than they carry
    ("disturbed_ps", "i8"),  # until when there was one, or messages met
    ("known", "i8"),  # messages without packets
    ("known_ps", "i8"),  # when there was one last
    ("unknown", "i8"),  # messages of other kinds
    ("messages", "i8"),  # those without packets so far, and the packets that they would have had
    ("packets", "i8"),
    ("goes_on_ps", "i8"),  # the error by known messages that went on with packets, and when
    ("went_on_ps", "i8"),
    ("contends", "u1"),  # a port was overloaded after messages without packets
    ("bound", "f8"),  # the largest error, as a part of a message's time
)
PACKET = lines(
    ("lands_ps", "i8"),  # when the next packet on the same link lands
    ("order", "i8"),  # of that event
    ("sequence", "i8"),  # of its first byte; in an acknowledgement: the next one expected
    ("sent_ps", "i8"),
    ("next", "i4"),  # in a queue, on a link, or on the free list
    ("flow", "i4"),
    ("bytes", "i4"),  # on the wire
    ("payload", "i4"),
    ("port", "i4"),  # over which it came
    ("hop", "i2"),  # into the ways of its flow
    ("kind", "u1"),
    ("is_marked", "u1"),
)
PORT = lines(
    # Packets on the link, and those that came over it and are still in the device that it leads to
    ("flying", QUEUE),  # on the link
    ("lands_ps", "i8"),  # when the first of them lands
    ("lands_order", "i8"),
    ("held", "i8"),
    ("in_headroom", "i8"),
    ("headroom", "i8"),
    ("back", "i4"),  # the port in the other direction; NONE: there is none
    ("to", "i4"),  # the device at its receiving end
    ("is_armed", "u1"),  # an event is planned for when it is free
    ("wakes", "u1"),
    ("is_host", "u1"),  # its sending end is an NPU
    ("is_paused", "u1"),
    ("has_turn", "u1"),  # a host that forwards: its own packets are next
    ("at_host", "u1"),  # its receiving end is an NPU
    ("pauses", "u1"),  # the sending end is paused
    ("shift", "u1"),
    # Sending
    ("free_ps", "i8"),  # when it can send again
    ("free_order", "i8"),
    ("delay_ps", "i8"),
    ("bits_per_s", "i8"),
    ("head", "i4"),  # packets that wait
    ("tail", "i4"),
    ("urgent", QUEUE),  # pauses and resumptions that wait
    ("waiting", "i8"),  # bytes that wait
    ("packets", "i4"),  # that wait
    ("device", "i4"),  # at its sending end
    # Figures
    ("queued", "i8"),  # bytes that wait, pauses included
    ("carried_packets", "i8"),
    ("bytes", "i8"),
    ("busy_ps", "i8"),
    ("deepest", "i8"),
    ("all_marked", "i8"),  # ECN: bytes, and the largest probability
    ("least_marked", "i8"),
    ("sending", "i4"),  # bytes of the packet that it sends, or sent last
    # Rarely used
    ("marked_at_most", "f8"),
    ("deepest_ps", "i8"),  # time of the deepest queue
    ("wakes_ps", "i8"),  # a host's port: when one of its flows may send again
    ("wakes_order", "i8"),
    ("paused", "i8"),  # how often and how long this port was paused
    ("paused_ps", "i8"),
    ("paused_since_ps", "i8"),
    ("marks", "i8"),
    ("drops", "i8"),
    ("is_closed", "u1"),  # it stays paused for ever, by the last search
)
DEVICE = record(
    ("shared", "i8"),  # bytes of its buffer that packets share
    ("used", "i8"),  # by them
)
FLOW = record(
    ("size", "i8"),  # at least one
    ("padding", "i8"),  # 1 if the message has no bytes
    ("begin_ps", "i8"),
    ("message", "i4"),
    ("source", "i4"),
    ("target", "i4"),
    ("next", "i4"),  # among those that begin, or on the free list
    ("packets", "i4"),  # in the network
    ("port", "i4"),  # over which it leaves
    ("back_port", "i4"),  # over which acknowledgements leave
    ("back", "i4"),  # where the way back begins
    ("is_reported", "u1"),  # the arrival has been reported to the engine
    # Only where links fail: the dead link on which a packet was lost since the last acknowledgement, and when
    ("lost_on", "i4"),
    ("lost_ps", "i8"),
    ("retransmitted", "i4"),  # packets
    ("timeouts", "i4"),
    # Only in a record of ports (`flows`)
    ("received", "i4"),  # packets with data
    ("held", "i4"),  # the flow whose message a full window holds back, and since when
    ("full_ps", "i8"),  # NONE: it is not full
    ("open_ps", "i8"),  # when it opened
    ("window_ps", "i8"),  # delay by the window
    ("rate_ps", "i8"),  # delay by the rate
    ("paused_ps", "i8"),  # how long its port was paused: before it began, later since then
    ("queued_ps", "i8"),  # how long its packets were queued
    ("last_queued_ps", "i8"),  # and the last of them
    ("left_ps", "i8"),
    ("arrived_ps", "i8"),
)
SENDING = record(("begin_ps", "i8"), ("end_ps", "i8"), ("port", "i4"), ("bytes", "i4"))
MESSAGE = record(
    *WAY_FIELDS,  # while its way is looked up
    ("begin_ns", "i8"),
    ("left_ns", "i8"),  # when its last byte was sent; NONE: it was not
    ("through", "i8"),  # the causal event of this
    ("origin", "i8"),  # of the event that sent it, to notice ties
    *MESSAGE_FIELDS,
)
