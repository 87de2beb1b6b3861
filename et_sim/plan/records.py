"""The plan: flat integer tables of everything that must happen, without times at which it happens.

Every table is a record array; columns named `*_first` point into another table. Nodes belong to templates,
which any number of actors share; whatever depends on *which* rank runs a template (channels of its sends and
receives, the groups it is a member of) is stored with the actor.
"""

from __future__ import annotations

import functools
import math
import mmap
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from msgspec import Struct

from et_sim.basics.kept import Kept
from et_sim.basics.unique import unique
from et_sim.machine.corrections import Correction
from et_sim.machine.model import Notice
from et_sim.machine.networks import Failure
from et_sim.plan.kernel_table import KernelTable
from et_sim.trace.tensors import TensorUses

if TYPE_CHECKING:
    from et_sim.trace.group_rule import GroupRule

Value = TypeVar("Value")


class Action(IntEnum):
    """The effect of issuing a node."""

    INSTANT = 0  # completes in place
    DELAY = 1  # completes after `duration_ns`
    COLLECTIVE = 2
    SEND = 3
    RECEIVE = 4
    MEMORY = 5  # a request of `duration_ns` to a remote-memory server, or one to a memory pool


class Lane(IntEnum):
    """The resource that a node occupies from issue to completion; all limited lanes hold one node.

    All but the first four are in use only with the correction CONCURRENT_COMMUNICATION, without which their
    nodes take turns in COMMUNICATION, and by nodes that are marked as concurrent in their trace. Streams of
    the machine are lanes behind these, with limits of their own.
    """

    CPU = 0
    COMPUTE = 1
    COMMUNICATION = 2
    RECEIVE = 3  # unlimited
    SEND = 4
    MEMORY = 5
    COLLECTIVE = 6  # unlimited: simulated collectives are limited by their queues; and requests of groups
    FREE_CPU = 7  # unlimited: concurrent nodes
    FREE_COMPUTE = 8  # unlimited
    FREE_SEND = 9  # unlimited: sends of a collective library; only those between the same ranks wait


LANES = len(Lane)
SHARED_LANES = int(Lane.SEND)  # the lanes in use where all communication shares one
UNLIMITED_LANES = (Lane.RECEIVE, Lane.COLLECTIVE, Lane.FREE_CPU, Lane.FREE_COMPUTE, Lane.FREE_SEND)
UNLIMITED = 2**31 - 1  # nodes that such a lane holds
FIRST_FACTOR = 1  # below 0: slows others by that much; 0: neither slows others nor is slowed
NO_AXIS = -1
# Values of `members_first` for an axis that is no list of ranks.
IN_SYSTEM, IN_GROUP = -1, -2  # the stride counts ranks, or places in the group
NO_ORDER = -1
REQUEST_BYTES = 8192  # of a rendezvous request
LINE_BYTES = 64  # of the cache
MAPPED_BYTES, HUGE_BYTES = 1 << 18, 1 << 23  # of an array that gets pages of its own, and large ones
NO_REDUCTION = -1  # differs from a reduction that takes no time
NO_LIMIT = -1


class QueueCursor(IntEnum):
    """An actor's round-robin cursor, which picks the queue of a phase."""

    NEXT = 0  # over all queues; the upper half runs anticlockwise
    FIRST = 1  # over the lower half, clockwise
    LAST = 2  # over the upper half, anticlockwise
    NONE = 3  # always the first queue


class WaitingOrder(IntEnum):
    """The order in which chunks wait in a queue for a reduce-scatter or an all-gather."""

    PRIORITY = 0
    ALTERNATING = 1  # reduce-scatters and all-gathers in turn
    SMALLEST_FIRST = 2
    FEWEST_PHASES_FIRST = 3
    SMALLEST_INPUT_FIRST = 4  # SMALLEST_FIRST of ASTRA-sim 1.0: by input, not by output or rest


def record(*fields: tuple[str, str | np.dtype[Any]]) -> np.dtype[Any]:
    """Return an aligned record type; a field may be a record in turn."""
    return np.dtype(list(fields), align=True)


def lines(*fields: tuple[str, str | np.dtype[Any]]) -> np.dtype[Any]:
    """Return an aligned record type whose size is a multiple of a cache line."""
    short: Any = record(*fields)
    formats, offsets = zip(*(short.fields[name][:2] for name in short.names), strict=True)
    size = -(-short.itemsize // LINE_BYTES) * LINE_BYTES
    layout: Any = {"names": short.names, "formats": formats, "offsets": offsets, "itemsize": size}
    return np.dtype(layout, align=True)


NODE = record(
    ("action", "u1"),
    ("lane", "u1"),
    ("treatment", "u1"),
    ("busy", "u1"),  # counts as computing in the exposed-communication figure
    ("indegree", "i4"),
    ("children", "i4"),
    ("detail", "i4"),  # COLLECTIVE: row of `collectives`; SEND, RECEIVE: index among the template's own;
    # MEMORY, to a pool: row of `memory_ways`
    ("member", "i4"),  # COLLECTIVE, MEMORY of a group: index among the actor's groups
    ("occurrence", "i4"),  # COLLECTIVE: number of earlier ones with the same group and detail
    ("children_first", "i8"),
    ("duration_ns", "i8"),
    ("bytes", "i8"),
)
SPAN = record(("from_ns", "i8"), ("share", "f8"))  # of the usual speed of kernels, until the next span
SLOWDOWN = record(  # units of work that are done in a nanosecond
    ("alone", "i8"),
    ("beside", "i8"),  # while its rank communicates
    ("each", "i8"),  # less for each unit that communication holds, but not below `beside`; 0: no change
)
TEMPLATE = record(
    ("node_first", "i8"),
    ("nodes", "i8"),
)
ACTOR = record(
    ("template", "i4"),
    ("rank", "i4"),  # its rank; with folding, one representative
    ("node_first", "i8"),  # where its nodes' state begins
    ("channel_first", "i8"),
    ("first_member", "i8"),
    ("memory_server", "i4"),  # -1: its requests never wait
    ("start_ns", "i8"),
    ("pace_first", "i8"),  # where the durations of its nodes begin in `paces`; -1: they are the template's
)
CHANNEL = record(
    ("source", "i4"),  # actors
    ("target", "i4"),
    ("tag", "i8"),
    ("bytes", "i8"),
    ("handshake", "i4"),  # key by which sends wait: (source, target, tag), or the first two; -1: none do
    ("room", "i8"),  # bytes that may be sent between these ranks before receives are posted, or NO_LIMIT
    ("copy_ns", "i8"),  # of a message that waited in a buffer
)
COLLECTIVE = record(
    ("kind", "u1"),
    ("phases", "i4"),  # of every chunk
    ("chunks", "i4"),
    ("chunk_plan_first", "i4"),
    ("rotations", "i4"),  # number of lists of phases of a chunk plan, which chunks take in turn
    ("priority", "i8"),  # comm_priority of the node, for the EXPLICIT policy
    ("first_sequence", "i8"),  # of the first one of every program, with MATCH_BY_PROGRAM
)
CHUNK_PLAN = record(  # chunks of a collective that have the same phases, in a row
    ("chunk_end", "i4"),  # the first chunk of the collective behind them
    ("phase_first", "i4"),  # of its first rotation; the others follow
)
PHASE = record(
    ("program", "i4"),
    ("axis", "i4"),  # NO_AXIS: the axis of the group it runs in
    ("dimension", "i4"),
    ("queues", "i4"),  # its set of queues at its member: a dimension's, or that of a ring of its own
    ("cursor", "u1"),
    ("operation", "u1"),
    ("bytes", "i8"),  # per member, before or after it: the larger one
)
PROGRAM = record(
    ("members", "i4"),
    ("sends", "i4"),
    ("start_transfers", "i4"),
    ("burst", "i4"),  # messages that one transfer may send
    ("half", "i4"),
    ("tree_first", "i4"),  # into `trees`, where the program is a tree; -1: it has steps
    ("custom_first", "i4"),  # into `customs`, where the program is a custom one; -1: it is not
    ("pairs", "u1"),  # 1: peers by pairing, 0: by shifting
    ("paced", "u1"),  # 1: the time of a transfer is a library's pace, not a reduction
    ("turns", "u1"),  # 1: runs in reverse in queues that run anticlockwise
    ("goes_up", "u1"),  # trees: towards the root, from it, or both
    ("goes_down", "u1"),
    ("trees", "u1"),  # number of trees, which phases of an actor use in turn
    ("in_network", "u1"),  # 1: by switches; its place in `trees` has the bytes that a member sends and gets
    ("joins", "u1"),  # in the network: switches wait for all that is below them
    ("up_fixed", "i8"),  # in the network: fixed bytes, and bytes for each member below a switch
    ("up_each", "i8"),
    ("down_fixed", "i8"),
    ("down_each", "i8"),
    ("dimension", "i4"),  # the one network dimension its messages cross; -1: depends on the peers
    ("step_period", "i4"),
    ("transfer_period", "i4"),
    ("window", "i4"),  # steps that a member may be ahead of the one it sends to; NO_LIMIT: any number
    ("own_steps", "i4"),  # blocks of a period, two for each member (clockwise, anticlockwise); 0: none
    ("copy_ns", "i8"),  # of a message that waited in a buffer
    ("step_first", "i8"),
    ("transfer_first", "i8"),
)
STEP = record(
    ("distance", "i4"),
    ("bytes", "i8"),
    ("incoming", "i8"),  # with own steps: bytes of the message that comes in; without bytes there is none
)
TRANSFER = record(
    ("reduction_ns", "i8"),  # NO_REDUCTION: none
    ("bytes", "i8"),
    ("inward", "u1"),
    ("returns", "u1"),
)
BUS = record(
    ("latency_ns", "i8"),
    ("overhead_ns", "i8"),
    ("gap_ns", "i8"),
    ("reduction_delay_ns", "i8"),  # per 100 bytes
    ("gap_per_byte", "f8"),
)
TREE = record(  # a member's place in a tree
    ("parent", "i4"),
    ("left", "i4"),
    ("right", "i4"),
    ("up_bytes", "i8"),  # of its message to its parent
    ("down_bytes", "i8"),  # of its parent's message to it; the root: what it begins with
    ("up_reduction_ns", "i8"),  # cost of its message at its parent; NO_REDUCTION: none
    ("down_reduction_ns", "i8"),  # cost of its parent's message at the member
)
SWITCH = record(  # of a tree of switches that reduce
    ("endpoint", "i4"),  # of messages
    ("server", "i4"),  # index of the switch in the network
    ("sort", "i4"),  # row of `switch_classes`, shared by equal switches
    ("branch", "i4"),  # to its parent; -1: it is the root
    ("first_branch", "i4"),
    ("branches", "i4"),
    ("members", "i4"),  # ranks below it
    ("first_of_tree", "i4"),  # the root
    ("switches", "i4"),  # of the tree, in a row
    ("bytes_per_ns", "f8"),
    ("latency_ns", "f8"),
)
BRANCH = record(  # a connection from a switch to a rank or switch below
    ("switch", "i4"),
    ("below", "i4"),  # another switch; -1: a rank
    ("rank", "i4"),  # a rank that is connected as the actor's ranks are
    ("actor", "i4"),
    ("member", "i4"),  # of a group that does not span the system
    ("members", "i4"),  # ranks below it
)
CUSTOM = record(  # the program of one member of a group in a custom collective
    ("template", "i4"),
    ("channel_first", "i8"),
)
AXIS = record(
    ("members", "i4"),
    ("stride", "i4"),  # distance between neighbours, in ranks or in places of the group
    ("members_first", "i8"),  # into `group_ranks`; IN_SYSTEM, IN_GROUP: they follow from the stride
    ("slot", "i4"),  # index of the axis among those of a member's groups; 0: the group's own axis
    # Into `orders`, where the place at each position begins, then each place's position; -1: they are equal.
    ("order_first", "i8"),
    ("endpoint_ns", "i8"),
)
GROUP = record(
    ("members", "i4"),
    ("axis", "i4"),  # through its members, in their order
    ("members_first", "i8"),
    ("first_member", "i8"),  # of a group that spans the system: the first actor's
    ("queue_sets", "i4"),
)
MEMBER = record(
    ("actor", "i4"),
    ("group", "i4"),
    ("position", "i4"),
)


class Version1Rules(Struct, frozen=True):
    """The rules of ASTRA-sim 1.0 that later versions do not have."""

    pairs_early: bool  # messages go on the calendar once their receives are posted
    starts_together: bool  # a chunk starts when all ranks have issued it, and all have the same program
    arrivals_by_sender: bool  # of one time, arrivals are ordered by when they were scheduled
    top_priority: int  # a collective of at least this priority overrides the policy


class UsedGroup(Struct, frozen=True, eq=False):
    """A group that nodes name; there is one such object per canonical name."""

    name: str  # as in the input; "": the whole system
    members: tuple[int, ...] | GroupRule  # as listed, or a rule that gives each rank's members


class FoldLimit(Struct, frozen=True):
    """A reason why ranks are simulated one by one, and a change with which fewer actors represent them."""

    reason: str
    remedy: str


class LoweredPlan(Struct, frozen=True, eq=False):
    """All tables, and the few scalars that hold for the whole run."""

    ranks: int
    dimensions: int
    queues_per_dim: int
    queue_order: WaitingOrder
    running_limit: int  # chunks that may run in one queue at a time
    stream_policy: int  # +1: later collectives first, -1: earlier first, 0: by priority
    actor_of_rank: Any
    templates: Any
    lane_first: Any  # per template and lane: the number of its nodes in earlier lanes
    lane_limits: Any  # per lane: nodes that it holds at a time
    slowing: Any  # per node: by how much it slows others (below 0), or FIRST_FACTOR plus a row of `slowdowns`
    slowdowns: Any
    nodes: Any
    paces: Any  # durations of the nodes of actors that do not keep those of their template
    spans: Any  # the speed of kernels over time (`SlowSpans`); this and the next two
    span_first: Any
    is_kernel: Any
    slow: tuple[Failure, ...]  # these as the machine has them
    children: Any
    actors: Any
    actor_channels: Any
    channels: Any
    collectives: Any
    chunk_plans: Any
    phases: Any
    programs: Any
    steps: Any
    trees: Any
    customs: Any
    switches: Any  # that reduce, tree by tree
    branches: Any
    own_branches: Any  # by actor and axis of the system, then by member: its branch; -1: none
    switch_endpoints: int  # of messages, besides the ranks
    switch_servers: int
    switch_classes: tuple[str, ...]  # names of the classes of equal switches
    transfers: Any
    bus: Any  # LogGP parameters of the shared memory bus; empty: there is none
    axes: Any
    orders: Any  # of NPUs around rings
    groups: Any
    group_names: tuple[str, ...]  # "": the whole system
    group_ranks: Any  # ranks of the listed groups
    group_members: Any  # and their rows in `members`
    members: Any
    actor_members: Any
    handshakes: int
    rendezvous: bool
    memory_servers: int
    memory_ways: Any  # to the tiers of a memory pool and back (`pool_tables`); empty: there is none
    memory_hops: Any
    pool_units: Any  # `PoolUnits`
    joint_requests: Any  # to the pool, by groups
    first_joint: Any  # by group
    corrections: frozenset[Correction]
    notices: tuple[Notice, ...]  # inputs that were accepted with a remark
    is_folded: bool  # some actor stands for several ranks
    limits: tuple[FoldLimit, ...]  # reasons for more actors than different programs
    link_classes: Any  # class of each link that messages share: equal numbers, equal links; None: all differ
    link_turns: Any  # sources of messages on them, if links carry one at a time
    version_1: Version1Rules
    latest: int  # the time that no run may pass, in units of time
    # Not used by the engine, only by reports:
    misplaced_programs: bool  # custom collectives run programs of other places than in the list
    kernels: KernelTable | None  # prices; None: no model describes its times
    has_rules: bool  # several models time kernels
    library_choices: tuple[str, ...]  # of each row of `collectives`; (): no library
    library_nodes: tuple[int, ...]  # number of nodes, likewise; 0: not a collective of the library
    stream_names: tuple[str, ...]  # of the lanes behind the others
    tensors: tuple[TensorUses, ...]  # per template of the workload; empty: memory is not tracked
    used_groups: tuple[tuple[UsedGroup, ...], ...]  # per template of the workload: the groups of its nodes
    kept: Kept | None = None  # for plans that differ from this one in times alone; None: there are none

    def derived(self, make: Callable[..., Value], *given: Any) -> Value:
        """Return `make(self, *given)`, which plans that differ in times alone share.

        `make` reads no times but those in what is given (`basics.kept` states how this is compared).
        """
        return make(self, *given) if self.kept is None else self.kept.of(make, self, *given)

    @property
    def lanes(self) -> int:
        """Return the number of lanes in use, which are the first ones."""
        return max(SHARED_LANES, int(self.nodes["lane"].max(initial=0)) + 1)

    @property
    def most_collectives(self) -> int:
        """Return the number of collectives of the template that has most."""
        return most_of_a_template(self, self.nodes["action"] == Action.COLLECTIVE)

    @property
    def collectives_at_a_time(self) -> int:
        """Return the number of collectives that a rank may have under way, by their lanes."""
        lanes = unique(self.nodes["lane"][self.nodes["action"] == Action.COLLECTIVE])
        return min(int(self.lane_limits[lanes].sum(dtype=np.int64)), UNLIMITED)

    @property
    def queue_sets(self) -> int:
        """Return the most sets of queues of a member: one for each dimension, and others for own rings."""
        return max(self.dimensions, int(self.groups["queue_sets"].max(initial=0)))

    @property
    def queue_rows(self) -> int:
        """Return the number of queues of a dimension; a single queue may be two, one for each direction."""
        parts_ways = self.queues_per_dim == 1 and Correction.TWO_WAY_QUEUES in self.corrections
        return self.queues_per_dim + parts_ways

    @property
    def largest_custom(self) -> int:
        """Return the number of nodes of the largest program of a custom collective."""
        return int(self.templates["nodes"][self.customs["template"]].max(initial=0))

    @property
    def largest_message(self) -> int:
        """Return the bytes of the largest message that the run may send."""
        return self.derived(_largest_message)


def _largest_message(plan: LoweredPlan) -> int:
    sizes = [int(of["bytes"].max(initial=REQUEST_BYTES)) for of in (plan.steps, plan.channels)]
    sizes += [int(plan.trees[way].max(initial=0)) for way in ("up_bytes", "down_bytes")]
    gathered = plan.programs["up_each"] * plan.programs["members"]
    return max(*sizes, int(gathered.max(initial=0)))


def lane_limits(streams: tuple[int, ...] = ()) -> Any:
    """Return the number of nodes that each lane holds at a time; `streams` are those of the machine."""
    limits = [UNLIMITED if lane in UNLIMITED_LANES else 1 for lane in Lane]
    return np.array([*limits, *streams], np.int32)


def most_of_a_template(plan: LoweredPlan, of_node: Any) -> int:
    """Return the largest sum of a column over the nodes of a template."""
    summed = np.concatenate(([0], np.cumsum(of_node, dtype=np.int64)))
    first = plan.templates["node_first"]
    return int((summed[first + plan.templates["nodes"]] - summed[first]).max(initial=0))


def table(dtype: np.dtype[Any], rows: int) -> Any:
    """Return a zeroed record array."""
    return zeros((rows,), _of_records(dtype)).view(np.recarray)


@functools.cache
def _of_records(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type of the rows of a record array, which NumPy would make again for each of them."""
    return dtype if dtype.names is None else np.dtype((np.record, dtype))


def zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """Return an array that begins at a cache line; a large one has pages of its own."""
    size = math.prod(shape) * dtype.itemsize
    if size < 0:
        raise ValueError(f"a table has a negative number of rows: {shape}")
    if size >= MAPPED_BYTES:
        return np.frombuffer(_pages(size), dtype).reshape(shape)
    memory = np.zeros(size + LINE_BYTES, np.uint8)
    begin = -memory.ctypes.data % LINE_BYTES
    return memory[begin : begin + size].view(dtype).reshape(shape)


def _pages(size: int) -> mmap.mmap:
    """Return zeroed memory from the system, which is only occupied once written, and freed separately."""
    is_private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    try:
        pages = mmap.mmap(-1, size, **is_private)
    except OSError as error:
        raise MemoryError(f"Unable to allocate {size / (1 << 20):,.0f} MiB") from error
    if size >= HUGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # not supported by this system
            pages.madvise(mmap.MADV_HUGEPAGE)
    return pages


def filled(dtype: np.dtype[Any], rows: Sequence[tuple[Any, ...]]) -> Any:
    """Return a record array with the given rows."""
    made = table(dtype, len(rows))
    for row, values in enumerate(rows):
        made[row] = values
    return made
