"""Kinds of events. The first group is in time slots, the second in the buckets of actors."""

OPENS_BUCKET = 64  # added to the kind of an event of the second group that opens its bucket in a slot
START = 21  # an actor that starts late: a actor
MESSAGE = 1  # point-to-point arrival: a channel, b sending node, c sending actor
CUSTOM_MESSAGE = 16  # the same for a node of a custom collective: a channel, b node, c chunk
STEP = 2  # collective arrival: a group member, b step key, c phase key
LATE_RECEIVE = 3  # a receive was posted after its message: a actor, b node
LATE_STEP = 4  # the same within a collective: a chunk, b step key (trees)
REQUESTED_MESSAGE = 11  # rendezvous: request at the source of a message: a channel, b receiver, c its node
REQUESTED_CUSTOM = 22  # the same for a node of a custom collective: a channel, b chunk, c node
REQUESTED_STEP = 12  # the same within a collective: a group member, the source, b and c as in STEP
HELD_MESSAGE = 10  # a message that waited for room at its receiver starts: a channel, b event that waited
INJECT_MESSAGE = 13  # a message that was sent after its request starts: a, b and c as in MESSAGE
INJECT_CUSTOM = 23  # the same for a node of a custom collective: a, b and c as in CUSTOM_MESSAGE
INJECT_STEP = 14  # the same within a collective: a group member, the source, b and c as in STEP
AT_SWITCH = (
    24  # part of a chunk at a switch that reduces: a 2 * group (+ 1: from above), b branch, c phase key
)
SWITCH_DONE = 25  # a switch has processed a chunk: a last branch, b group, c phase key
BRANCH_FREE = 26  # a member's part has left for its switch: b branch
POOL_STAGE = 27  # the first piece of a transfer is at a stage of a memory pool: a actor, b node
POOL_SHARE = 28  # rates of transfers in a memory pool are due
POOL_END = 29  # such a transfer is through: a version
STEP_LEFT = 30  # the last byte of a step's message has left its port: a chunk
EVALUATED = 31  # what follows from evaluated messages goes on the calendar: a chunk, b kind, c its time
NETWORK = 32  # and above: events of the network model's own: a row of its tables, b version

NODE_DONE = 5  # a actor, b node
SLOWED_DONE = 9  # of a node that takes longer beside communication: a actor, b node, c version
TRANSFER_AT_ENDPOINT = 6  # a chunk, b step key (trees), c reduction time; NONE: nothing to reduce
TRANSFER_READY = 7  # a chunk, b step key (trees)
SERVER_FREE = 8  # a memory server
BUS_SENT = 17  # a side of a bus has sent: a side
BUS_RECEIVED = 18  # a side of a bus has received: a side
BUS_PROCESSED = 19  # a side of a bus has processed a request: a side
EXCEED = 0  # nothing else is left to happen: a message goes beyond a buffer: a pair of ranks
ADMIT = 20  # nothing else was left to happen: a queue may go over its limit: a queue
CUSTOM_DONE = 15  # a node of a custom collective is done: a chunk, b node
