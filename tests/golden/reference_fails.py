"""Intended outcomes of the golden cases in which the reference fails, with reasons.

A row is named by the case's identity, or by its tag `why`, which both back ends share. `CORRECTED` holds the
other outcomes in the corrected profile.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """The possible ends of a run."""

    COMPLETES = "completes"  # status 0
    STALLS = "stalls"  # status 1, with an explanation
    REFUSED = "refused"  # status 2, with a sentence


@dataclass(frozen=True, slots=True)
class Intended:
    """A row of the table: `printed` is part of the message if the run does not complete."""

    outcome: Outcome
    because: str
    printed: str = ""


def completes(because: str) -> Intended:
    """Return the row of a valid input on which the reference crashes."""
    return Intended(Outcome.COMPLETES, because)


def stalls(because: str, printed: str) -> Intended:
    """Return the row of a run in which ranks wait for ever, with the explanation."""
    return Intended(Outcome.STALLS, because, printed)


def refused(because: str, printed: str) -> Intended:
    """Return the row of an input without a meaning."""
    return Intended(Outcome.REFUSED, because, printed)


EMPTY_MESSAGES = "halving would leave empty messages: sizes are rounded up to a byte per member"
HEAP = "the figures are those that the reference computes before its heap corruption shows"
AT_ZERO = "an event without delay at time zero is an event like any other"
STATISTICS = "the statistics take any kind of node"
ORDER = "two ranks each wait for the other's next step, as their traces state"

BY_CASE = {
    "coll1d-0041": completes(EMPTY_MESSAGES),
    "coll1d-0275": completes(EMPTY_MESSAGES),
    "collnd-0068": stalls(
        "one queue per dimension for both ways of an all-reduce: the skew that trees make closes a circle",
        "set num-queues-per-dim to 2 or more",
    ),
    "collnd-0113": completes(EMPTY_MESSAGES),
    "collnd-0194": completes(HEAP),
    "collnd-0220": completes(EMPTY_MESSAGES),
    "collnd-0226": completes(HEAP),
    "collnd-0281": completes(HEAP),
    "multicoll-0016": completes(HEAP),
    "p2p-0069": completes(AT_ZERO),
    "compute-0030": completes("a kernel without bytes is done at once, and what follows it is issued"),
    "compute-0046": completes("a kernel without bytes is done at once, and what follows it is issued"),
    "memory-0007": completes("memory per node works"),
    "memory-0012": completes("memory per node works"),
    "fuzz-0042": completes(STATISTICS),
}

BY_WHY = {
    "endpoint-delay 0, collective at tick 0": completes(AT_ZERO),
    "metadata node (process-group info)": completes(STATISTICS),
    "rank with an empty trace": completes("a rank with nothing to do is done at once"),
    "INVALID node followed by a dependent node": completes("what an instant node releases is issued"),
    "INVALID node in the middle of a chain": completes("what an instant node releases is issued"),
    "group of one rank": completes("nothing need be moved, so it takes no time"),
    "unsupported collective type BARRIER": completes("a barrier goes up and down a tree"),
    "unsupported collective type REDUCE": completes("a reduce goes up a tree"),
    "unsupported collective type GATHER": completes("a gather goes up a tree"),
    "send with size 0": completes("an empty message takes its latency"),
    "send to self": completes("a message to oneself arrives at once"),
    "collective of size 0 (all-gather)": completes("nothing need be moved, so it takes no time"),
    "all-gather smaller than the number of splits (infinite loop)": completes(
        "there are no more chunks than bytes"
    ),
    "zero-length roofline compute at tick 0": completes(AT_ZERO),
    "roofline compute with tensor_size 0 followed by a dependent": completes(
        "a kernel without bytes is done at once, and what follows it is issued"
    ),
    "involved_dim all false": completes("no dimension takes part: nothing need be moved"),
    "halvingDoubling with 6 NPUs": completes("other numbers than powers of two go around a circulant"),
    "halvingDoubling in a 3x4 network": completes("other numbers than powers of two go around a circulant"),
    "doubleBinaryTree with 6 NPUs": completes("the tree is balanced for any number"),
    "doubleBinaryTree on a sub-group": completes("a group has a tree of its own"),
    "rendezvous p2p of 3 GiB (int overflow of the count)": completes("sizes have 64 bits"),
    "custom collective with preferred-dataset-splits 4": completes("a program is never cut into chunks"),
    "preferred-dataset-splits missing": completes("one chunk, as in the configuration page"),
    "npus_count 1": completes("a dimension of one NPU has no messages"),
    "congestion-aware Ring of 2 NPUs": completes("two neighbours, a link each way"),
    "congestion-aware Ring of 2 NPUs (p2p only)": completes("two neighbours, a link each way"),
    "tiny p2p at tick 0 (aware: zero serialization delay)": completes(AT_ZERO),
    "p2p with zero latency and tiny size at tick 0": completes(AT_ZERO),
    "multi-dimensional topology on the congestion-aware backend": completes(
        "messages cross one dimension after the other"
    ),
    "p2p dependency cycle between ranks (true deadlock)": stalls(ORDER, "messages wait for each other"),
    "overlapping groups used in opposite order (true deadlock)": stalls(ORDER, "give all ranks one order"),
    "recv without a send": stalls("the message cannot be guessed", "rank 0 never sends it"),
    "send/recv size mismatch": stalls("the intended size cannot be guessed", "rank 1 expects 2000 B"),
    "collective missing on one rank": stalls("no other rank can replace it", "add the missing collectives"),
    "collective sizes differ between ranks": stalls(
        "the intended size cannot be guessed", "collectives of the group of all ranks differ"
    ),
    "cyclic dependency": stalls(
        "the reference leaves the nodes out and reports success", "remove one of these dependencies"
    ),
    "rank not a member of the group it uses": refused("the group is not the rank's", "not a member of it"),
    "memory node with NO_MEMORY_EXPANSION": refused("there is no such memory", "has no remote memory"),
    "no implementation for the collective": refused("there is no algorithm to run", "is not given"),
    "more implementations than dimensions": refused("algorithms without a dimension", "has 2 entries"),
    "unknown implementation name": refused("there is no such algorithm", "is not an algorithm"),
    "unknown scheduling policy": refused("there is no such policy", 'key "scheduling-policy" is "SJF"'),
    "topology name not supported": refused("there is no such topology", 'is "Torus"'),
    "mismatched network list lengths": refused("the intended dimensions are unclear", "has 2 entries"),
    "comm_size attribute missing": refused("the size is missing", "lacks the attribute 'comm_size'"),
    "unknown communicator group": refused("the members are missing", "group '9' is not defined"),
    "dependency on a node that does not exist": refused(
        "what should happen first is unknown", "which is not in the file"
    ),
    "collective flagged as CPU op": refused(
        "a mistake of the trace's writer: it would run in the CPU's lane", "marked is_cpu_op"
    ),
    "remote memory: unknown memory-type": refused("there is no such memory", 'is "CXL"'),
}

CORRECTED = {
    "collnd-0068": completes("each way has queues of its own, and only the last dimension uses a tree"),
}
