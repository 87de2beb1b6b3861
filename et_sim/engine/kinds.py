"""Kinds of events. The first five stand in time slots, the others in the buckets of actors."""

DRAIN = 0  # an actor's bucket: a bucket
MESSAGE = 1  # point-to-point arrival: a channel, b sending node, c sending actor
STEP = 2  # collective arrival: a seat, b step and direction, c stage
LATE_RECEIVE = 3  # a receive was posted after its message: a actor, b node
LATE_STEP = 4  # the same within a collective: a stream

NODE_DONE = 5  # a actor, b node
BUNDLE_AT_ENDPOINT = 6  # a stream, c reduction time; NONE: nothing to reduce
BUNDLE_READY = 7  # a stream
SERVER_FREE = 8  # a memory server
