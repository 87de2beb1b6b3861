"""Corrections of the reference's modelling defects, one named switch each, and the rules of the profiles.

The reference profile corrects none, so that its nanoseconds are the reference's; the corrected profile
corrects all. Inputs on which the reference aborts or hangs have no switch: both profiles handle them.

A difference between profiles is a field of `Behaviour`, named after the rule. The code that applies the rule
does not mention profiles.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace


class Correction(StrEnum):
    """The switches, by their names in the system file."""

    GROUP_COUNTERS = "group-counters"
    MATCH_BY_PROGRAM = "match-by-program"
    ISSUE_AT_ONCE = "issue-at-once"
    CUSTOM_BY_POSITION = "custom-by-position"
    EXACT_HALVING_DOUBLING = "exact-halving-doubling"
    TREE_OPERATIONS = "tree-operations"
    DIRECT_REDUCTIONS = "direct-reductions"
    TWO_WAY_QUEUES = "two-way-queues"
    ALL_QUEUES = "all-queues"
    EXACT_CHUNKS = "exact-chunks"
    WHOLE_PATH = "whole-path"
    PORT_BANDWIDTH = "port-bandwidth"
    CONCURRENT_COMMUNICATION = "concurrent-communication"
    EAGER_SENDS = "eager-sends"
    ENDS_WHEN_SENT = "ends-when-sent"
    SIMULATED_BROADCAST = "simulated-broadcast"
    DIMENSION_SCHEDULERS = "dimension-schedulers"
    GROUPS_BY_DIMENSION = "groups-by-dimension"


class CorrectionNote(Struct, frozen=True):
    """The text of the documentation on a switch."""

    correction: Correction
    defect: str
    instead: str


CORRECTION_NOTES = (
    CorrectionNote(
        Correction.GROUP_COUNTERS,
        "A collective of a group also uses up a number of the whole system's counter, so ranks that took "
        "part in different groups no longer agree about the next collective of all, and wait for ever.",
        "Every group counts its own collectives only.",
    ),
    CorrectionNote(
        Correction.MATCH_BY_PROGRAM,
        "Collectives are matched by the order in which each rank happens to issue them.",
        "Collectives are matched by type, size and position among similar ones in the program.",
    ),
    CorrectionNote(
        Correction.ISSUE_AT_ONCE,
        "Nodes that become ready while a rank issues others wait until something else completes.",
        "They are issued in the same pass.",
    ),
    CorrectionNote(
        Correction.CUSTOM_BY_POSITION,
        "In a custom collective a rank runs the program of its position among the sorted members, but peers "
        "are positions in the list as written; and its messages share tags with the workload's.",
        "Both are positions in the list as written; its messages match only each other.",
    ),
    CorrectionNote(
        Correction.EXACT_HALVING_DOUBLING,
        "Odd sizes lose bytes, one reduction is not charged, and the others are charged for the size of "
        "the next message.",
        "Messages are whole pieces of the vector, one per rank and rounded up, and every received message of "
        "the reducing half is reduced at its own size.",
    ),
    CorrectionNote(
        Correction.TREE_OPERATIONS,
        "A tree runs an all-reduce for every operation, and also reduces on the way down.",
        "It reduces on the way up only; all other operations use a ring in its place.",
    ),
    CorrectionNote(
        Correction.DIRECT_REDUCTIONS,
        "Direct charges reductions by counting: a window less than the group leaves some out, and groups "
        "of ranks pay for the gathering half, too.",
        "Every message of the reducing half is reduced, and no other.",
    ),
    CorrectionNote(
        Correction.TWO_WAY_QUEUES,
        "With one queue per dimension, chunks on their way in and out of an all-reduce share it, and "
        "ranks that differ in time can wait for each other for ever.",
        "The two ways have queues of their own. When no event is left, every blocked queue admits its oldest "
        "chunk over the limit, so that no run stalls because of queues.",
    ),
    CorrectionNote(
        Correction.ALL_QUEUES,
        "An all-reduce over one dimension uses only the first half of its queues.",
        "It uses all of them.",
    ),
    CorrectionNote(
        Correction.EXACT_CHUNKS,
        "The last chunk has full size, so one byte more can cost a whole chunk, and small collectives "
        "grow to a byte per chunk and NPU.",
        "Chunks differ by at most one byte, the larger ones first, and add up to the size; there are never "
        "more than bytes. The share of a chunk that a phase leaves a rank is rounded up, so that no byte is "
        "lost; on the way out, the same shares are gathered, so that none is added. If no byte moves, no "
        "time passes.",
    ),
    CorrectionNote(
        Correction.WHOLE_PATH,
        "A message between NPUs that differ in several dimensions pays for the first of them only "
        "(analytical model).",
        "It pays for each dimension that it crosses.",
    ),
    CorrectionNote(
        Correction.PORT_BANDWIDTH,
        "Messages that share a port (an end of a link) do not delay each other, so that it carries more "
        "bytes than its bandwidth allows (analytical model); and each message is cut to whole nanoseconds by "
        "itself (link model), as is each request in the stages of a memory pool.",
        "A port carries one message after the other, in order of arrival, on every link of a message's "
        "path; a message alone pays for the latencies of all, and for the slowest one's bandwidth once. "
        "Networks of ASTRA-sim 1.0, whose links are bundles, have no such ports.",
    ),
    CorrectionNote(
        Correction.CONCURRENT_COMMUNICATION,
        "A rank has one slot for collectives, sends and remote memory: groups never overlap, and a send "
        "delays the next collective.",
        "Collectives are limited by their queues alone, of which every group has its own, and LIFO and FIFO "
        "follow the order of the program; sends and remote memory have a slot each.",
    ),
    CorrectionNote(
        Correction.EAGER_SENDS,
        "A send is complete when its message has been delivered.",
        "It is complete when the last byte has left the rank.",
    ),
    CorrectionNote(
        Correction.ENDS_WHEN_SENT,
        "A rank's part of a collective ends when its last message is handed to the network, which may still "
        "have to carry it.",
        "It ends when everything that the rank needs has arrived and the last byte that it sends has left "
        "its port. Networks of ASTRA-sim 1.0 have no such ports.",
    ),
    CorrectionNote(
        Correction.SIMULATED_BROADCAST,
        "A broadcast takes the time that the trace records, on any network.",
        "It is simulated on a tree, like reduce, gather, scatter and barrier (which both profiles simulate).",
    ),
    CorrectionNote(
        Correction.DIMENSION_SCHEDULERS,
        "The keys `inter-dimension-scheduling` and `intra-dimension-scheduling` are not read.",
        "They choose the order of dimensions and the order within a dimension. The greedy orders start anew "
        "with every collective; groups that are a part of the system are ordered if `groups-by-dimension` "
        "lays them out.",
    ),
    CorrectionNote(
        Correction.GROUPS_BY_DIMENSION,
        "A group that is a part of the system is one ring through its members as listed (or runs the only "
        "algorithm of the system file), across all dimensions: of all ports that its members in a node have "
        "to other nodes, it uses one. It pays 10 ns at endpoints, whatever the delay in the system file.",
        "The group runs as on a machine of its own shape: dimension by dimension with their algorithms, "
        "members in the order of ranks. Where nodes hold different numbers of its members, it runs several "
        "rings at a time, which enter and leave every node at members of their own.",
    ),
)


class Profile(StrEnum):
    """The simulator whose behaviour is simulated, unless single corrections are switched."""

    REFERENCE = "reference"
    CORRECTED = "corrected"
    ASTRA_1 = "astra-1.0"


DEFAULT = Profile.REFERENCE  # if the system file names none


class Behaviour(Struct, frozen=True):
    """The rules of a profile."""

    profile: Profile
    corrections: frozenset[Correction] = frozenset()
    must_reach_all: bool = False  # a collective of all NPUs without an algorithm for a dimension is refused
    # Rules of ASTRA-sim 1.0:
    are_chunks_alike: bool = False  # all chunks of a collective have one size
    are_queues_shared_both_ways: bool = False  # an all-reduce uses all queues on its way in and out
    wait_by_input: bool = False  # "smallest first" compares the input of a phase, not its output
    sees_loads_of_this_time: bool = False  # greedy orders include loads planned in the same nanosecond
    are_programs_in_step: bool = False  # if all ranks run one program, their chunks start together
    has_top_priority: bool = False  # a high priority in the trace goes before the scheduling policy
    has_fractions_of_ns: bool = False  # contention adds up fractions of nanoseconds

    @property
    def switched(self) -> frozenset[Correction]:
        """Return the corrections that differ from those of the profile."""
        return self.corrections ^ _BEHAVIOURS[self.profile].corrections

    def corrects(self, correction: Correction) -> bool:
        """Check whether a defect of the reference is corrected."""
        return correction in self.corrections


_BEHAVIOURS = {
    Profile.REFERENCE: Behaviour(Profile.REFERENCE),
    Profile.CORRECTED: Behaviour(Profile.CORRECTED, frozenset(Correction), must_reach_all=True),
    Profile.ASTRA_1: Behaviour(
        Profile.ASTRA_1,
        # defects of 2.x that 1.0 does not have
        frozenset({Correction.ISSUE_AT_ONCE, Correction.DIMENSION_SCHEDULERS}),
        are_chunks_alike=True,
        are_queues_shared_both_ways=True,
        wait_by_input=True,
        sees_loads_of_this_time=True,
        are_programs_in_step=True,
        has_top_priority=True,
        has_fractions_of_ns=True,
    ),
}


def behaviour_of(profile: Profile, switches: dict[str, bool] | None = None) -> Behaviour:
    """Return the profile's behaviour, with single corrections switched."""
    behaviour = _BEHAVIOURS[profile]
    switched = {Correction(name): wanted for name, wanted in (switches or {}).items()}
    chosen = behaviour.corrections | {name for name, wanted in switched.items() if wanted}
    return replace(behaviour, corrections=chosen - {name for name, wanted in switched.items() if not wanted})
