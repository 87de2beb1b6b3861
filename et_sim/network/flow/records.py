"""What the flow model keeps: routes in use, which links they take, and what each link has to share.

Messages of one route are told apart by how much the route has to carry until they are through, so that one
number per route changes with time, however many messages there are.

Where ranks are folded, links that are alike are one record, too, and a message of a route stands for those of
all ranks of its source's actor: for so many `messages` on each of these links. These are as many as ranks
times messages of each, more than 31 bits hold. A message that is split has a share on a link: `weight` adds
up those of all messages that it stands for. Whole numbers of messages are exact there.
"""

from __future__ import annotations

from et_sim.engine.containers import FREE, QUEUE
from et_sim.engine.state.records import MESSAGE_FIELDS
from et_sim.network.fabric import WAY_FIELDS
from et_sim.plan.records import record

STATE = record(
    ("head", "i4"),  # messages that begin when all else in this nanosecond has happened
    ("tail", "i4"),
    ("to_begin", "i4"),  # how many they are
    ("batch", "i8"),  # how often messages have begun
    ("longer", "i4"),  # routes to which some were sent just now
    ("free_routes", FREE),
    ("free_uses", FREE),
    ("changed", "i4"),  # links on which flows began or ended since rates were set
    ("opened", "i4"),  # how many routes were opened since then
    ("routes", "i8"),  # and in all
    ("part", "i4"),  # how often rates have been set
    ("is_due", "i4"),  # rates are set at the end of this nanosecond
    ("planned_ns", "i8"),  # when the next message ends; NONE: none does
    ("plans", "i4"),  # how often that was said
    ("changes_ns", "f8"),  # when rates change: as soon as all that ends in this nanosecond has ended
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
    ("batch", "i8"),  # when some were sent last, and how many; and the message ahead of them
    ("batch_size", "i4"),
    ("ahead", "i4"),
    ("next_longer", "i4"),  # another one to which messages were sent
    ("head", "i4"),  # the one that is through first
    ("tail", "i4"),
    ("bottleneck", "i4"),  # the link that sets the rate; NONE: it has no rate
    ("part", "i4"),  # in which its rate was set last
    ("dimension", "i4"),  # of the first link
    ("since_ns", "f8"),  # `served` is as it was then
    ("served", "f8"),  # bytes
    ("rate", "f8"),  # bytes per ns
    ("narrowest", "f8"),  # the rate of a message that is alone
    ("ends_ns", "f8"),  # of the first message, at this rate
    ("latency_ns", "f8"),
    ("stored_ns", "f8"),  # per byte of a packet: at each device after the first link
    ("back_ns", "f8"),  # until the last acknowledgement is back
)
USE = record(
    ("route", "i4"),
    ("link", "i4"),
    ("next", "i4"),  # link of the route, or on the free list
    ("messages", "i8"),  # how many on one link a message of the route stands for
    ("weight", "f8"),  # their shares on this link, added up
    ("before", "i4"),  # among the uses of the link
    ("after", "i4"),
    ("is_back", "i1"),  # for acknowledgements
)
SHARED = record(
    ("capacity", "f8"),  # bytes per ns
    ("wire", "f8"),  # that of one of the links of a trunk, over which a packet goes
    ("back", "f8"),  # what acknowledgements take of it, as a part of what they acknowledge would take
    ("back_ns", "f8"),  # of an acknowledgement
    ("speed", "i4"),  # the class of its figures
    ("links", "i8"),  # how many links it stands for
    ("head", "i4"),  # its uses
    ("messages", "i8"),
    ("bytes", "f8"),  # on the wire, of messages that are through
    ("next_changed", "i4"),
    ("is_changed", "i4"),
    ("bound", "i4"),  # routes whose rate it sets
    ("rate", "f8"),  # of all its flows
    ("since_ns", "f8"),  # at this rate
    ("carried", "f8"),  # bytes until then
    ("part", "i4"),  # in which its flows were looked at last: this and what follows
    ("is_stale", "i4"),  # the next five are to be counted anew
    ("kept", "f8"),  # what flows take whose rates stay as they are
    ("top_kept", "f8"),  # the highest rate of these
    ("bound_rate", "f8"),  # of those of them that it is the bottleneck of; 0: there are none
    ("to_set", "f8"),  # the others, by their weights
    ("back_to_set", "f8"),
    ("uses_to_set", "i4"),  # and how many they are
    ("open", "f8"),  # of these, flows that have no rate yet
    ("open_back", "f8"),
    ("open_uses", "i4"),
    ("sets_rate", "i4"),  # it is the bottleneck of some of them
    ("left", "f8"),  # capacity for those that are open
    ("share", "f8"),  # of each of them, at least
    ("top_set", "f8"),  # the highest rate that was set
)
MESSAGE = record(
    *WAY_FIELDS,  # while its route is looked up
    ("begin_ns", "i8"),
    ("origin", "i8"),  # of the event that sent it, to notice ties
    ("until", "f8"),  # what its route has served when it is through
    *MESSAGE_FIELDS,
)
