"""Operations of LogGOPS: they take processor and NIC, or wait until these are free.

Once an operation has both, the end of its node is fixed. A node without other predecessors then receives its
operation ahead of the time at which the engine issues it, if no lane can delay it. All other nodes receive
theirs when they are issued.

The earliest operation goes first. The order of several at one time affects the length of a run, as LogGOPS
has no fair way to share a processor. ATLAHS leaves it to the priority queue of C++, usually a binary heap
that sinks a hole to the bottom and lifts the last entry when its top is taken. This heap does the same, so
ties are decided alike. The older LogGOPSim numbers operations when it makes them; of those that one event
frees at one rank, sends come before receives before computation. The lowest number goes first.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.decorators import prefetch
from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.calendar.clock import schedule
from et_sim.engine.containers import join, leave
from et_sim.engine.prefetching import CHILDREN, NODE, fetch_of_node
from et_sim.engine.state.durations import duration_of
from et_sim.engine.state.kinds import CUSTOM_MESSAGE, MESSAGE, NETWORK, NODE_DONE
from et_sim.engine.state.lanes import is_unlimited
from et_sim.engine.state.run import NONE, Run
from et_sim.engine.transport.network_seam import end_sending, new_message, release_message
from et_sim.machine.transports import LogGopsRules
from et_sim.plan.records import Action, Lane

LOGGOPSIM = list(LogGopsRules).index(LogGopsRules.LOGGOPSIM)


@works_on_tables
def put(run: Run, row: int, time: int) -> None:
    """Queue an operation for a time, or for when its resources are free."""
    state = run.network.state[0]
    state.waiting += 1
    _rise(run, state.waiting - 1, row, time)


@works_on_tables
def take_first(run: Run) -> int:
    """Take the first operation out of the heap, which must have one."""
    state, heap = run.network.state[0], run.network.heap
    state.waiting -= 1
    size = state.waiting
    first, last, time = heap[0].operation, heap[size].operation, heap[size].goes_on_ns
    hole = 0
    while 2 * hole + 2 < size:
        below = 2 * hole + 2
        if not _is_up_to(run, below, heap[below - 1].operation, heap[below - 1].goes_on_ns):
            below -= 1
        _move(heap, below, hole)
        hole = below
    if 2 * hole + 2 == size:
        _move(heap, size - 1, hole)
        hole = size - 1
    if size > 0:
        _rise(run, hole, last, time)
    return first


@works_on_tables
def first_ns(run: Run) -> int:
    """Return when the first operation goes on, if there is one."""
    return run.network.heap[0].goes_on_ns


@works_on_tables
def _rise(run: Run, hole: int, row: int, time: int) -> None:
    heap = run.network.heap
    while hole > 0:
        above = (hole - 1) >> 1
        if _is_up_to(run, above, row, time):
            break
        _move(heap, above, hole)
        hole = above
    heap[hole].operation, heap[hole].goes_on_ns = row, time


@works_on_tables
def _is_up_to(run: Run, place: int, row: int, time: int) -> bool:
    """Return whether a place of the heap goes before an operation at that time."""
    entry = run.network.heap[place]
    if entry.goes_on_ns != time or run.network.constants[0].rules != LOGGOPSIM:
        return bool(entry.goes_on_ns <= time)
    return bool(run.messages[entry.operation].number <= run.messages[row].number)


@works_on_tables
def _move(heap: Any, place: int, to: int) -> None:
    heap[to].operation, heap[to].goes_on_ns = heap[place].operation, heap[place].goes_on_ns


FIRST, ARRIVAL = 0, 1  # events: the first operation goes on; a message is received
SEND, RECEIVE, COMPUTE, ARRIVE, MEET = range(5)  # stages
DELAY, TO_SEND, TO_RECEIVE = int(Action.DELAY), int(Action.SEND), int(Action.RECEIVE)
COMPUTE_LANE, FREE_COMPUTE_LANE = int(Lane.COMPUTE), int(Lane.FREE_COMPUTE)
FETCHED = 15  # operations at the top of the heap
STAGE_BITS, IN_BATCH_BITS = 3, 24  # of an operation's number, below those of its batch
CPU_LANE, FREE_CPU_LANE = int(Lane.CPU), int(Lane.FREE_CPU)


@works_on_tables
def new_operation(run: Run, stage: int, source: int, target: int, size: int) -> int:
    """Return an operation that is not in the heap."""
    row = new_message(run, target, size, NONE, NONE, NONE, NONE, NONE)
    operation = run.messages[row]
    operation.stage, operation.source, operation.receive = stage, source, NONE
    _number(run, row, source)
    return row


@works_on_tables
def _begin_batch(run: Run, rank: int) -> None:
    """Begin a batch of operations, which lasts until one of another rank."""
    state = run.network.state[0]
    state.batch_rank, state.in_batch = rank, 0
    state.batch += 1


@works_on_tables
def _number(run: Run, row: int, rank: int) -> None:
    """Number an operation by batch, by stage, and then by age."""
    operation, state = run.messages[row], run.network.state[0]
    operation.number = 0  # the heap decides
    if run.network.constants[0].rules == LOGGOPSIM:
        if rank != state.batch_rank:
            _begin_batch(run, rank)
        operation.number = ((state.batch << STAGE_BITS | operation.stage) << IN_BATCH_BITS) | state.in_batch
        state.in_batch += 1


@works_on_tables
def ends_alone(run: Run, size: int) -> bool:
    """Return whether a send ends at another time than its message; the engine receives both."""
    constants = run.network.constants[0]
    return size <= constants.most_eager or constants.rules == LOGGOPSIM


@works_on_tables
def is_on_processor(lane: int) -> bool:
    """Return whether nodes of a lane use the processor."""
    return lane in (COMPUTE_LANE, FREE_COMPUTE_LANE, CPU_LANE, FREE_CPU_LANE)


@works_on_tables
def fetch_next(run: Run) -> None:
    """Fetch what the next operations need into the cache: the nearer they are to the top, the more."""
    heap = run.network.heap
    if run.network.state[0].waiting < FETCHED:
        return
    for at in range(7, FETCHED):
        prefetch(run.messages, heap[at].operation)
    for at in range(3, 7):
        operation = run.messages[heap[at].operation]
        prefetch(run.network.ranks, operation.source)
        prefetch(run.network.ranks, operation.target)
        prefetch(run.network.channels, operation.a)
        prefetch(run.plan.actors, operation.c)
    for at in range(3):
        row, ahead = heap[at].operation, NODE if at > 0 else CHILDREN
        if run.messages[row].stage == ARRIVE and run.messages[row].kind == MESSAGE:
            row = run.network.channels[run.messages[row].a].head
            if ahead == NODE:
                prefetch(run.messages, row)
                row = NONE
        if row != NONE:
            _fetch_of_operation(run, ahead, row)


@works_on_tables
def _fetch_of_operation(run: Run, ahead: int, row: int) -> None:
    operation = run.messages[row]
    if operation.kind in (NONE, MESSAGE) and operation.c != NONE:
        fetch_of_node(run, ahead, operation.c, operation.b)
        prefetch(run.network.nodes, run.plan.actors[operation.c].node_first + operation.b)


@works_on_tables
def go_on(run: Run, row: int) -> bool:
    """Run the next stage of an operation; return False if it waits for processor or NIC."""
    stage = run.messages[row].stage
    if stage == COMPUTE:
        return _compute(run, row)
    if stage == SEND:
        return _send(run, row)
    if stage == RECEIVE:
        _post(run, row)
        return True
    return _take_in(run, row)


@works_on_tables
def _waits(run: Run, row: int, free: int) -> bool:
    """Return whether the resources of an operation are busy; if so, queue it for when they are free."""
    if free > run.clock[0].now:
        put(run, row, free)
        return True
    return False


@works_on_tables
def _compute(run: Run, row: int) -> bool:
    operation, now = run.messages[row], run.clock[0].now
    rank = run.network.ranks[operation.source]
    if _waits(run, row, rank.processor_ns):
        return False
    end, node, actor_row = now + operation.bytes, operation.b, operation.c
    rank.processor_ns = end
    release_message(run, row)
    schedule(run, end, NODE_DONE, actor_row, node, 0)
    _end_is_known(run, actor_row, node, end)
    return True


@works_on_tables
def _send(run: Run, row: int) -> bool:
    operation, now, constants = run.messages[row], run.clock[0].now, run.network.constants[0]
    rank = run.network.ranks[operation.source]
    if _waits(run, row, max(rank.processor_ns, rank.sending_ns)):
        return False
    after_first = max(operation.bytes, 1) - 1
    wire = int(after_first * constants.gap_per_byte)
    left = now + constants.overhead + after_first * constants.overhead_per_byte
    rank.processor_ns, rank.sending_ns = left, now + constants.gap + wire
    operation.stage = ARRIVE
    if constants.rules == LOGGOPSIM:
        _begin_batch(run, NONE)
        _number(run, row, NONE)
        put(run, row, now + constants.overhead + constants.latency)
    else:
        put(run, row, left + constants.latency + wire)
    if not _is_point_to_point(operation.kind) or operation.bytes <= constants.most_eager:
        _end_send(run, row, left)
    return True


@works_on_tables
def _is_point_to_point(kind: int) -> bool:
    return kind in (MESSAGE, CUSTOM_MESSAGE)


@works_on_tables
def _end_send(run: Run, row: int, end: int) -> None:
    """Report the end of a send."""
    operation = run.messages[row]
    if operation.done != NONE:
        end_sending(run, end, operation.done, operation.b, operation.c)
    if operation.kind == MESSAGE:
        _end_is_known(run, operation.c, operation.b, end)


@works_on_tables
def _post(run: Run, row: int) -> None:
    """Match a posted receive with an early message, which goes on or, if its time was taken, ends."""
    channel_row = run.messages[row].a
    _leave_one(run, row)
    early = leave(run.messages, run.network.channels[channel_row].early)
    if early == NONE:
        run.network.channels[channel_row].open += 1
        return
    operation, now = run.messages[early], run.clock[0].now
    operation.receive = leave(run.messages, run.network.channels[channel_row])
    if run.network.constants[0].rules == LOGGOPSIM:
        _receive(run, early, max(now, operation.number))
        return
    operation.stage = MEET
    put(run, early, now)


@works_on_tables
def _take_in(run: Run, row: int) -> bool:
    """Process a message at its target, which matches its receive or waits for it."""
    operation = run.messages[row]
    waits_for_receive = _is_point_to_point(operation.kind) and operation.stage == ARRIVE
    is_early = waits_for_receive and run.network.channels[operation.a].open == 0
    if not is_early or run.network.constants[0].rules == LOGGOPSIM:
        rank = run.network.ranks[operation.target]
        if _waits(run, row, max(rank.processor_ns, rank.receiving_ns)):
            return False
        _take_target(run, row)
    if is_early:
        join(run.messages, run.network.channels[operation.a].early, row)
        return True
    if waits_for_receive:
        run.network.channels[operation.a].open -= 1
        operation.receive = leave(run.messages, run.network.channels[operation.a])
    _receive(run, row, operation.number)
    return True


@works_on_tables
def _take_target(run: Run, row: int) -> None:
    """Take processor and NIC of the target for a message."""
    operation, now, constants = run.messages[row], run.clock[0].now, run.network.constants[0]
    rank = run.network.ranks[operation.target]
    after_first = max(operation.bytes, 1) - 1
    copied = after_first * constants.overhead_per_byte
    if constants.rules == LOGGOPSIM:
        wire = int(after_first * constants.gap_per_byte)
        rank.receiving_ns = now + constants.gap + wire
        operation.number = now + constants.overhead + max(copied, wire)
    else:
        rank.receiving_ns = now + constants.gap
        operation.number = rank.receiving_ns + constants.overhead + copied
    rank.processor_ns = operation.number


@works_on_tables
def _receive(run: Run, row: int, end: int) -> None:
    """End the receive of a message."""
    operation = run.messages[row]
    schedule(run, end, NETWORK + ARRIVAL, row, 0, 0)
    # LogGOPSim numbers what one event frees rank by rank.
    is_source_first = operation.source <= operation.target or run.network.constants[0].rules != LOGGOPSIM
    if is_source_first:
        _free_source(run, row, end)
    if operation.receive != NONE:
        receive = run.messages[operation.receive]
        node, actor_row = receive.b, receive.c
        _leave_one(run, operation.receive)
        if node != NONE:
            _end_is_known(run, actor_row, node, end)
    if not is_source_first:
        _free_source(run, row, end)


@works_on_tables
def _free_source(run: Run, row: int, end: int) -> None:
    """Hold the source of a large message until this is received, or until its reception begins."""
    operation, constants = run.messages[row], run.network.constants[0]
    if operation.bytes <= constants.most_eager:
        return
    nic_end = run.network.ranks[operation.target].receiving_ns
    if constants.rules == LOGGOPSIM:
        end = nic_end = run.clock[0].now
    source = run.network.ranks[operation.source]
    source.processor_ns = max(source.processor_ns, end)
    source.sending_ns = max(source.sending_ns, nic_end)
    if _is_point_to_point(operation.kind):
        _end_send(run, row, end)


@works_on_tables
def _leave_one(run: Run, row: int) -> None:
    """Release a receive that has left both the heap and its channel."""
    run.messages[row].uses -= 1
    if run.messages[row].uses == 0:
        release_message(run, row)


@works_on_tables
def _end_is_known(run: Run, actor_row: int, node: int, end: int) -> None:
    """Create operations for nodes whose last predecessor's end has been computed."""
    actor = run.plan.actors[actor_row]
    _begin_batch(run, actor.rank)
    first = run.plan.templates[actor.template].node_first
    plan_node = run.plan.nodes[first + node]
    for index in range(plan_node.children_first, plan_node.children_first + plan_node.children):
        child = run.plan.children[index]
        state = run.network.nodes[actor.node_first + child]
        state.parents += 1
        state.ready_ns = max(state.ready_ns, end)
        if state.parents == run.plan.nodes[first + child].indegree:
            _put_ahead(run, actor_row, child, state.ready_ns)


@works_on_tables
def _put_ahead(run: Run, actor_row: int, node: int, time: int) -> None:
    """Create the operation of a node ahead if only processor and NIC can delay it."""
    actor = run.plan.actors[actor_row]
    plan_node = run.plan.nodes[run.plan.templates[actor.template].node_first + node]
    if not is_unlimited(run, plan_node.lane):
        return
    rank, is_for_processor = run.network.ranks[actor.rank], run.network.constants[0].rules == LOGGOPSIM
    if plan_node.action == DELAY and is_on_processor(plan_node.lane):
        row = new_operation(run, COMPUTE, actor.rank, actor.rank, duration_of(run, actor_row, node))
        is_for_processor = True
    elif plan_node.action == TO_SEND:
        row = _new_send(run, run.plan.actor_channels[actor.channel_first + plan_node.detail])
        time = max(time, rank.sending_ns)
    elif plan_node.action == TO_RECEIVE:
        row = new_operation(run, RECEIVE, actor.rank, actor.rank, 0)
        run.messages[row].a = run.plan.actor_channels[actor.channel_first + plan_node.detail]
        run.messages[row].uses = 2
    else:
        return
    if is_for_processor:
        time = max(time, rank.processor_ns)
    run.messages[row].b, run.messages[row].c = node, actor_row
    run.network.nodes[actor.node_first + node].operation = row
    put(run, row, time)


@works_on_tables
def _new_send(run: Run, channel_row: int) -> int:
    channel = run.plan.channels[channel_row]
    row = new_operation(run, SEND, channel.source, channel.target, channel.bytes)
    operation = run.messages[row]
    operation.kind, operation.a = MESSAGE, channel_row
    if ends_alone(run, channel.bytes):
        operation.done = NODE_DONE
    return row
