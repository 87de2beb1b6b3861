"""Records of the flow model: routes in use, their links, and the capacity that each link shares.

Messages of a route differ by the bytes that the route carries until they end, so one number per route changes
with time, however many messages it has.

Where ranks are folded, equal links share a record, and a message of a route stands for those of all ranks of
its source's actor: so many `messages` on each of these links. Their number may exceed 31 bits. A split
message has a share on a link: `weight` is the sum of the shares of all messages that it stands for, exact for
whole numbers of messages.
"""

from __future__ import annotations

from et_sim.engine.containers import FREE, QUEUE
from et_sim.engine.state.records import MESSAGE_FIELDS
from et_sim.network.fabric import WAY_FIELDS
from et_sim.plan.records import record

# Events of the model.
SHARE = 0  # rates are due
END = 1  # a message is through
ARRIVAL = 2  # a message is at its target
TRY = 3  # senders whose bytes were lost look for a path
OTHERS = -1  # owners of a link: routes of any kind
SAME_NS = 2.0**-11  # a flow that ends so shortly before a nanosecond ends in it: rates are rounded
STATE = record(
    ("head", "i4"),  # messages that begin after all other events of this nanosecond
    ("tail", "i4"),
    ("to_begin", "i4"),  # their number
    ("batch", "i8"),  # how often messages have begun
    ("longer", "i4"),  # routes that received new messages just now
    ("free_routes", FREE),
    ("free_uses", FREE),
    ("changed", "i4"),  # links on which flows began or ended since rates were set
    ("opened", "i4"),  # how many routes were opened since then
    ("routes", "i8"),  # and in all
    ("places", "i4"),  # of their index in use, a power of two
    ("part", "i4"),  # how often rates have been set
    ("is_due", "i4"),  # rates are set at the end of this nanosecond
    ("changes_ns", "f8"),  # when rates of shared links change: after all ends there in this nanosecond
    ("planned_ns", "i8"),  # when the next message ends; NONE: none does
    ("plans", "i4"),  # how often the next end was planned
    ("held", "i4"),  # routes without links, whose messages wait for a path
    ("first_held", "i4"),  # the first of those that try again; NONE: none does
    ("tries_ns", "i8"),  # when the next try is planned; NONE: none is
)
ROUTE = record(
    ("source", "i4"),
    ("target", "i4"),
    ("ports", "i8"),
    ("kind", "i4"),  # of messages
    ("member", "i4"),  # of a group, to which the steps of collectives go
    ("number", "i8"),  # of those opened until now
    ("chain", "i4"),
    ("next", "i4"),  # on the free list
    ("uses", QUEUE),  # of links
    ("messages", "i4"),  # under way, and in line behind these
    ("batch", "i8"),  # of the last messages that were sent; their number and the message ahead of them follow
    ("batch_size", "i4"),
    ("ahead", "i4"),
    ("next_longer", "i4"),  # the next route that received messages
    ("head", "i4"),  # the one that ends first
    ("tail", "i4"),
    ("bottleneck", "i4"),  # the link that sets the rate; NONE: it has no rate
    ("part", "i4"),  # the setting of rates in which its rate was set last
    ("dimension", "i4"),  # of the first link
    ("since_ns", "f8"),  # time of `served`
    ("served", "f8"),  # bytes
    ("rate", "f8"),  # bytes per ns
    ("narrowest", "f8"),  # the rate of a lone message
    ("ends_ns", "f8"),  # of the first message, at this rate
    ("latency_ns", "f8"),
    ("stored_ns", "f8"),  # per byte of a packet: at each device after the first link
    ("back_ns", "f8"),  # until the last acknowledgement is back
    ("is_held", "i4"),  # it has no links, because its path is dead; the next six are about that
    ("next_held", "i4"),
    ("lost_on", "i4"),  # the dead link
    ("tries", "i4"),  # so far
    ("lost_ns", "i8"),  # when its bytes were lost
    ("next_try_ns", "i8"),  # NONE: the sender has given up
    ("sent_before", "f8"),  # bytes that count on its former links
)
USE = record(
    ("route", "i4"),
    ("link", "i4"),
    ("next", "i4"),  # link of the route, or on the free list
    ("messages", "i8"),  # how many messages on a link one message of the route stands for
    ("weight", "f8"),  # the sum of their shares on this link
    ("before", "i4"),  # among the uses of the link
    ("after", "i4"),
    ("is_back", "i1"),  # for acknowledgements
)
SHARED = record(
    ("capacity", "f8"),  # bytes per ns
    ("wire", "f8"),  # that of one link of a trunk, which a packet uses
    ("back", "f8"),  # share that acknowledgements take, relative to the traffic that they acknowledge
    ("back_ns", "f8"),  # of an acknowledgement
    ("speed", "i4"),  # the class of its figures
    ("links", "i8"),  # how many links it stands for
    ("head", "i4"),  # its uses
    ("messages", "i8"),
    ("bytes", "f8"),  # on the wire, of messages that have ended
    ("next_changed", "i4"),
    ("is_changed", "i4"),
    ("bound", "i4"),  # routes whose rate it sets
    ("rate", "f8"),  # of all its flows
    ("since_ns", "f8"),  # at this rate
    ("ended_ns", "f8"),  # when its last message ended
    ("carried", "f8"),  # bytes until then
    ("part", "i4"),  # the last setting of rates that considered its flows: this and what follows
    ("is_stale", "i4"),  # the next five have to be counted again
    ("kept", "f8"),  # the rates of flows that do not change
    ("top_kept", "f8"),  # the highest rate of these
    ("bound_rate", "f8"),  # the rate of kept flows with this bottleneck; 0: none
    ("to_set", "f8"),  # the other flows, by weight
    ("back_to_set", "f8"),
    ("uses_to_set", "i4"),  # and their number
    ("open", "f8"),  # of these, flows without a rate so far
    ("open_back", "f8"),
    ("open_uses", "i4"),
    ("sets_rate", "i4"),  # it is the bottleneck of some of them
    ("left", "f8"),  # capacity left for these
    ("share", "f8"),  # the least share of each of them
    ("top_set", "f8"),  # the highest rate that was set
    ("is_dead", "i4"),  # nothing passes
    ("is_altered", "i4"),  # its capacity has changed since rates were set
    ("waited_ns", "i8"),  # longest wait of messages that lost bytes on it
    ("owner", "i4"),  # the member, plus one, whose messages round a ring have it to themselves; or OTHERS
)
RING = record(  # per member of a group: its place in a ring that has its links to itself
    ("first", "i4"),  # the member that stands for the ring; NONE: not looked up yet
    ("is_refused", "i4"),  # of the ring: its links carry other messages, too
    ("started", "i4"),  # of the ring: members that have started its phase
    ("phase_key", "i8"),  # of the ring
    ("ahead", "i4"),  # the member that gets the messages
    ("axis", "i4"),
    ("direction", "i4"),
    ("link_first", "i4"),  # into the links of rings
    ("links", "i4"),
    ("chunk", "i4"),
    ("rate", "f8"),  # bytes per ns
    ("latency_ns", "f8"),
    ("ready_ns", "i8"),  # when its next transfer is ready; before the evaluation, when it started
    ("sent_ns", "i8"),  # its last message: when it began, and ended
    ("left_ns", "i8"),
    ("known_ns", "i8"),  # when the arrival of the last message to it was put on the calendar
    ("done_ns", "i8"),  # when its last phase was done
    ("since_ns", "f8"),  # this and the next three as of a route
    ("served", "f8"),
    ("until", "f8"),
    ("ends_ns", "f8"),
)
MESSAGE = record(
    *WAY_FIELDS,  # while its route is looked up
    ("begin_ns", "i8"),
    ("origin", "i8"),  # of the event that sent it, to notice ties
    ("until", "f8"),  # bytes that its route has served when it ends
    *MESSAGE_FIELDS,
)
