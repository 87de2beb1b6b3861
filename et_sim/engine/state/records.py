"""Layouts of the records of a run's state (`state`), field by field.

A number of -1 in a field that names a row stands for none.
"""

from __future__ import annotations

from et_sim.engine.containers import FREE
from et_sim.plan.records import record

# The key of a phase of a chunk is one number: its sequence, its program and its phase.
PHASE_BITS = 8
PHASE_KEY_BITS = 28
NO_PHASE = (1 << PHASE_KEY_BITS) - 1  # in place of program and phase: in none
PROGRAM_MASK = (1 << (PHASE_KEY_BITS - PHASE_BITS)) - 1

# To detect ties: a stored moment with the group and origin of the event, and its part.
MOMENT = record(("ns", "i8"), ("group", "i8"), ("origin", "i8"))
MARK = record(("ns", "i8"), ("group", "i8"), ("origin", "i8"), ("part", "i8"), ("root", "i8"))
STAMP = record(  # of an event: when and by which event it was put on the calendar
    ("ns", "i8"),
    ("group", "i8"),
    ("origin", "i8"),
    ("turn", "i8"),  # of that event among all of its nanosecond
    ("root", "i8"),
)
CLOCK = record(
    ("now", "i8"),
    ("slot", "i4"),  # the time slot being worked off
    ("bucket", "i4"),  # the rank bucket being drained; NONE: none
    ("to_start", "i4"),  # the next actor to start at time zero
    ("times", "i4"),  # distinct future times in the heap
    ("delivered", "i8"),  # messages
    ("completed", "i8"),  # nodes
    ("ties", "i8"),  # events whose order would have an effect; the next fields are for them (`ties`)
    ("group", "i8"),  # of the event under way, its origin, and how many nodes it has completed
    ("origin", "i8"),
    ("part", "i8"),
    ("before", "i8"),  # the chunk before the present one among the events of one origin
    ("posted", STAMP),
    ("turn", "i8"),  # of the event among all of its nanosecond, in the order that is certain
    ("turn_ns", "i8"),
    ("turn_posted_ns", "i8"),  # when, and at which turn, the events of this turn were put on the calendar
    ("turn_posted", "i8"),
    ("root", "i8"),  # blocks from the one at whose start its chain of events began; NONE: not certain
    ("not_chunks", "i8"),
    ("head", "i4"),  # events at the end of this time
    ("tail", "i4"),
    ("last_slot", "i4"),  # the slot of the last insertion, and the one before
    ("other_slot", "i4"),
    ("slot_places", "i8"),  # of the index of slots in use, a power of two
    ("bucket_places", "i8"),  # likewise
    ("open_buckets", "i4"),
    ("free_events", FREE),
    ("free_slots", FREE),
    ("free_unexpecteds", FREE),
    ("free_messages", FREE),
    ("free_bus_requests", FREE),
    ("free_joins", FREE),
    ("free_runnings", FREE),
    ("blocked", "i4"),  # whether Python has looked at the queues that wait for each other (`engine.blocked`)
    ("chunks_top", "i4"),
    ("phases_logged", "i4"),  # and not yet drained
)
SLOT = record(("time", "i8"), ("head", "i4"), ("tail", "i4"), ("chain", "i4"), ("next", "i4"))
BUCKET = record(  # of an event that opens one: its row is the event's
    ("time", "i8"),
    ("actor", "i4"),
    ("head", "i4"),  # entries after that event
    ("tail", "i4"),
    ("chain", "i4"),
)
EVENT = record(
    ("next", "i4"),
    ("kind", "i2"),
    ("more", "u2"),  # equal events that follow it in its bucket
    ("a", "i4"),
    ("b", "i4"),
    ("c", "i8"),
)
NODE_MARK = record(("mark", MARK), ("deferred", "i4"))
TURN = record(("tag", "i8"), ("origin", "i8"), ("last", "i8"))
UNEXPECTED = record(
    ("phase_key", "i8"),
    ("bytes", "i8"),
    ("arrives_ns", "i8"),
    ("member", "i4"),
    ("step_key", "i4"),
    ("peer", "i4"),  # the group member an offered message is for
    ("rank", "i4"),  # and the rank
    ("done", "i8"),  # as in MESSAGE_FIELDS
    ("chain", "i4"),
    ("next", "i4"),
    ("is_here", "i4"),
    ("mark", MARK),
)
OCCUPIED = -2  # less a node: it had occupied the lane
NODE_STATE = record(  # fields that a node needs only before or only after its issue share their place
    ("start_ns", "i8"),  # NONE: never issued
    ("end_ns", "i8"),  # NONE: never completed
    # When it became ready; later, of a collective: when a queue first admitted it; of a held send: when it
    # started.
    ("admitted_ns", "i8"),
    # The parent that completed last (the first of the trace, of several at once); once it was issued late
    # for want of a place in its lane: `OCCUPIED` less the node that had occupied it.
    ("caused_by", "i4"),
    ("partner", "i4"),  # parents not yet completed; later the actor whose message completed it
    # Next node in the list this node is waiting in; later, of a receive: the node that sent its message; of
    # a collective: the sequence of its first chunk within its group.
    ("number", "i4"),
    ("heap", "i4"),  # of its actor's ready nodes, and not of this node: `nodes.ready`
)
OF_NODE = [name for name in NODE_STATE.names or () if name != "heap"]
LANE_STATE = record(
    ("ready", "i4"),
    ("busy", "i4"),
    ("last", "i4"),
)
LANE_MARKS = record(  # to detect ties
    ("issued", MOMENT),
    ("readied", MOMENT),
    ("freed", MOMENT),
    ("issued_node", "i4"),
    ("issued_freed", "i4"),
    ("readied_apart", "i4"),
)
ACTOR_STATE = record(
    ("finish_ns", "i8"),
    ("busy_ns", "i8"),
    ("priority", "i8"),  # of its next collective
    ("collectives", "i4"),  # issued; counted where they start together
    ("completed", "i4"),
    ("running", "i4"),
    ("issuing", "i4"),  # 1 while an issue pass is under way
    ("deferred", "i4"),  # nodes that became ready during the pass
    ("held_sends", "i4"),  # its sends that found no buffer at their receivers and are not done
    ("awaited", "i4"),  # messages to it that are held
    ("ready", "i4"),  # nodes that wait for their lanes
    ("freed_ns", "i8"),  # when its last such send was done
    ("turns_to", "i4"),  # this and the next one: as in `RUNNING_TURNS`
    ("turned", "i8"),
    ("messages", "i8"),  # delivered to it, or sent by it point to point
)
ACTOR_MARKS = record(  # to detect ties
    ("group_ns", "i8"),
    ("group", "i8"),
    ("cluster_ns", "i8"),
    ("entry_ns", "i8"),
    ("entry_group", "i8"),
    ("passed", MOMENT),
    ("passed_apart", "i4"),
    ("passed_leaving", "i4"),
    ("passed_left", "i4"),
    ("cluster_is_bucket", "i4"),
)
MEMBER_STATE = record(
    ("next_sequence", "i8"),
    ("unexpected", "i4"),  # messages that arrived before their receive was posted
    ("cursor_first", "i4"),  # of dimension 0; those of the other dimensions follow, and so do its queues
)
RUNNING = record(
    ("priority", "i8"),  # of its chunks
    ("actor", "i4"),
    ("member", "i4"),
    ("node", "i4"),
    ("collective", "i4"),
    ("chunks_first", "i4"),
    ("chunks", "i4"),  # 0: the row is unused
    ("remaining", "i4"),
    ("next", "i4"),
)
RUNNING_MARKS = record(("mark", MARK))  # to detect ties
CHUNK = record(  # fields that every message needs: a line of the cache
    ("phase_key", "i8"),  # of the phase that it is in, or with NO_PHASE
    ("actor", "i4"),
    ("member", "i4"),
    ("program", "i4"),
    ("axis", "i4"),
    ("position", "i4"),  # of its actor along the axis
    ("sent", "i4"),
    ("received", "i4"),
    ("credit", "i4"),
    ("transfers", "i4"),
    ("step", "i4"),  # row of the next packet within the program's period
    ("transfer", "i4"),  # row of the next transfer within the program's period
    ("peer", "i4"),  # the member that gets all packets; NONE: not known yet, or several
    ("chain", "i4"),  # of the index of chunks by member and sequence
    ("phase", "i2"),
    ("direction", "i1"),  # +1 clockwise, -1 anticlockwise
    ("started", "i1"),
)
VISIT = record(  # of a chunk: fields for entering or leaving the queue of a phase
    ("running", "i4"),  # its collective
    ("phase_first", "i4"),
    ("queue", "i4"),
    ("previous", "i4"),
    ("next", "i4"),
    ("tree_or_rank", "i4"),  # row of its place in the phase's tree; else the rank of `peer`, if known
    ("leaving", "i4"),  # its last messages that have not left yet, if the phase waits for them
    ("held", "i4"),  # messages that wait for the buffer of their receiver
    ("posted_ns", "i8"),  # when it posted a receive last, where messages may be held
)
CHUNK_MARKS = record(  # to detect ties
    ("mark", MARK),
    ("queued_ns", "i8"),  # when it joined its queue
    ("posted", MOMENT),  # its last receive, and the first one in that nanosecond and group
    ("posted_from", "i4"),
    ("turn_before", "i4"),  # its predecessor when its first transfer of a nanosecond and group counted
    ("turn_ns", "i8"),
    ("turn_group", "i8"),
    ("half_tried_ns", "i8"),  # when the second half of a direct exchange was last tried
    ("half_done_ns", "i8"),  # when its first half had arrived
)
CHUNK_TIMES = record(  # of its phase, for the log
    ("queued_ns", "i8"),  # when it joined its queue
    ("start_ns", "i8"),
    ("waited_ns", "i8"),  # from posting receives to arrivals, summed
    ("waited_before", "i8"),  # on the last picture of `REPEATS`
)
RUNNING_TURNS = record(  # of a collective, since the last picture of `REPEATS`
    ("turned", "i4"),  # number of the comparison in which `turns_to` was set,
    ("taken", "i4"),  # and another collective turned to this one
    ("turns_to", "i4"),  # the collective in its place a period later, and
    ("comes_to", "i4"),  # many periods later
    ("advanced", "i4"),  # number of the comparison in which `advance` was set
    ("advance", "i4"),  # by how many chunks it is further after a period
    ("remaining_before", "i4"),
)
REPEATS = record(  # of the search for periods (`repeats`)
    ("due", "i8"),  # number of delivered messages at which to search; NEVER: it is off
    ("since", "i8"),  # likewise, when the search began
    ("expires", "i8"),  # simulated messages after which the picture is replaced by another one
    ("patience", "i8"),  # messages that a picture waits for
    ("picture_ns", "i8"),
    ("picture_delivered", "i8"),
    ("pending", "i8"),  # events on the calendar, and
    ("times", "i8"),  # distinct times, when the picture was taken
    ("last_ns", "i8"),  # when the last event of a period is due
    ("ends_ns", "i8"),  # when another event is due
    ("periods", "i8"),  # that may be skipped
    ("entries", "i8"),  # compared
    ("first_queue", "i8"),  # its place in the picture
    ("comparison", "i8"),  # number of comparisons so far
    ("skipped", "i8"),  # messages
    ("is_on", "i4"),
    ("is_pictured", "i4"),
    ("compares", "i4"),
    ("turns", "i4"),  # collectives or links have changed places
    ("stays", "i4"),  # something is there that cannot turn
    ("advances", "i4"),  # chunks have taken the places of earlier ones
    ("chunks_left", "i4"),  # of a collective that repeats its steps
)
PHASE_LOG = record(
    ("actor", "i4"),
    ("node", "i4"),  # of the actor's template
    ("chunk", "i4"),
    ("phase", "i4"),  # of the chunk, and its row in the plan
    ("phase_row", "i4"),
    ("messages", "i4"),  # received
    ("queued_ns", "i8"),
    ("start_ns", "i8"),
    ("end_ns", "i8"),
    ("waited_ns", "i8"),  # for its messages, from posting the receive to the arrival
)
QUEUE = record(
    ("head", "i4"),
    ("tail", "i4"),
    ("waiting", "i4"),
    ("running", "i4"),
    ("started", "i4"),  # chunks, counted to compare pictures (`REPEATS`)
)
QUEUE_MARKS = record(  # to detect ties
    ("joined", MOMENT),
    ("joined_apart", "i8"),
    ("started", MOMENT),
    ("started_priority", "i8"),
    ("mark", MARK),
)
CURSOR = record(
    ("next", "i2"),
    ("first", "i2"),
    ("last", "i2"),
    ("rotation", "i2"),  # of dimension 0: places by which the order of dimensions is turned next
    ("trees", "i2"),  # per collective type, a bit: the next tree has its root first
)
MESSAGE_FIELDS = (  # of a message under way; a network model adds its own
    ("target", "i4"),
    ("next", "i4"),  # in a link's queue
    ("kind", "i4"),  # of the event on arrival
    ("a", "i4"),
    ("b", "i4"),
    ("c", "i8"),
    ("done", "i8"),  # event when its last byte has left the source (`end_sending`); NONE: none
    ("bytes", "i8"),
)
BUS_SIDES = 4  # of every actor: NPU and memory of the outer bus, then of the inner one
BUS_SIDE = record(
    ("last_ns", "i8"),  # end of its last transfer
    ("state", "i4"),
    ("before", "i4"),  # the state before
    ("streak", "i4"),  # transfers sent since it last received
    ("processing", "i4"),  # 1 while a request is processed
)
BUS_FIFOS = 3  # of every side: requests to be sent, under way to it, and to be processed
BUS_FIFO = record(("head", "i4"), ("tail", "i4"))
BUS_REQUEST = record(
    ("bytes", "i8"),
    ("reduction_ns", "i8"),  # to be spent after the bus
    ("chunk", "i4"),
    ("step_key", "i4"),
    ("reduces", "i4"),
    ("returns", "i4"),
    ("outer", "i4"),  # the request that an inner trip serves; NONE: this is an outer one
    ("after", "i4"),  # continuation of the outer request after the inner trip
    ("next", "i4"),
)
WAITING_FIFO = record(  # of events without a time
    ("arrived", "i4"),  # counterparts that wait
    ("head", "i4"),
    ("tail", "i4"),
    ("arrived_ns", "i8"),  # when the last message came that had to wait
    # With finite buffers:
    ("balance", "i4"),  # of a channel: receives posted without messages; negative: messages without receives
    ("held", "i4"),  # of a channel: messages that wait for room
    ("ahead", "i8"),  # between two ranks: bytes of messages without receives
    ("last_ns", "i8"),  # when receives were posted last; their number (channel) or bytes (ranks)
    ("last", "i8"),
    ("joined", MOMENT),
    ("mark", MARK),
)
JOIN = record(  # a chunk at a switch that waits for the rest of it
    ("phase_key", "i8"),
    ("group", "i4"),  # group of the chunk, if it spans the system
    ("arrived", "i4"),  # number of branches that have sent their part
    ("next", "i4"),
)
SWITCH_STATE = record(
    ("free_ns", "i8"),  # by server: when it has forwarded all it has begun
    ("bytes", "i8"),  # by server: bytes that it has begun
    ("head", "i4"),  # by switch: its joins
)
BRANCH_STATE = record(  # of a member, on its switch
    ("busy", "i4"),
    ("chunk", "i4"),  # that is leaving
    ("head", "i4"),  # events that represent the waiting parts
    ("tail", "i4"),
    ("joined", MOMENT),  # this and the next ones: to detect ties
    ("mark", MARK),
)
SLOWED_ACTOR = record(
    ("under_way", "i4"),  # amount of communication under way that slows others
    ("beside", "i4"),  # amount when ends were planned
    ("head", "i4"),  # nodes under way that are slowed
    ("free", "i4"),  # rows for more
    ("mark", MARK),  # to detect ties
)
SLOWED_NODE = record(
    ("left", "i8"),  # units of work, at `since_ns`
    ("since_ns", "i8"),
    ("ends_ns", "i8"),  # as planned
    ("version", "i4"),  # of the plan
    ("factor", "i4"),
    ("node", "i4"),
    ("after", "i4"),  # in the list of the actor, or of its free rows
)
SERVER = record(("busy", "i4"), ("head", "i4"), ("tail", "i4"))
REQUEST = record(  # to a memory pool; its row is that of its node
    ("last_ns", "i8"),  # when its last piece is at the stage that it is at
    ("actor", "i4"),
    ("node", "i4"),
    ("hop", "i4"),
    ("next", "i4"),  # of the same joint request
    ("link", "i4"),  # where units are shared fairly, this and the next ones: its slowest stage
    ("left", "f8"),  # bytes
    ("rate", "f8"),  # bytes per ns
    ("fill_ns", "f8"),  # from the start of the last byte to its arrival
    ("begin_ns", "i8"),
)
USE = record(  # of a unit by a transfer, where these share it fairly
    ("unit", "i4"),
    ("part", "f8"),  # of the transfer's bytes; 0: none
    ("time", "f8"),  # of the unit for a byte of the transfer
)
POOL_STATE = record(  # of a pool whose units are shared fairly
    ("flows", "i4"),  # transfers under way
    ("most_hops", "i4"),
    ("is_due", "i4"),  # rates are set at the end of this nanosecond
    ("plans", "i4"),  # number of planned ends
    ("since_ns", "f8"),  # time of the state of all transfers
    ("changes_ns", "f8"),  # when rates change
)
UNIT = record(  # of a stage of a memory pool
    ("free_ns", "i8"),  # end of all transfers given to it
    ("free_rest", "f8"),  # and the fraction of a nanosecond besides
    ("seen", "i8"),  # the last joint request, and stage, that it passed
    ("resource", "i4"),
    ("is_full", "i4"),  # where units are shared fairly, this and the next ones: it sets rates
    ("left", "f8"),  # of its time
    ("open", "f8"),  # demand of transfers without a rate, if each had a byte per ns
    ("passed", "f8"),  # bytes
    ("passing", "f8"),
)
JOINT_STATE = record(("arrived", "i4"), ("head", "i4"))  # `head` is 1 more than a request
