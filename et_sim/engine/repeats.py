"""What repeats itself is not simulated again and again: collectives whose steps are all alike.

While chunks go round a ring, everything is after some time as it was, but later by a period, and each chunk
further by as many steps. The rules of steps, transfers and links ask how far times and steps are apart, and
never what they are; so what follows is the same again, until a chunk comes to steps or transfers of another
kind, or near its end, or something else is due. All these periods are passed at once, to the nanosecond.

Now and then, at the beginning of an instant, a picture is taken of all that decides what happens next: what is
on the calendar, the chunks that run, and messages that came early. At later instants, what is there is compared
with it. Nothing but transfers, steps and links (`_repeats`) happens in between: whatever else happens, or ends a
phase, begins the search anew (`looks_anew`). So queues, nodes and what waits stay as they are. What else is on
the calendar keeps its time, and nothing is passed beyond it.

The argument needs one list of steps, which all members of a phase follow, so that what is sent to a chunk in a
period is as much as it receives, and its peers come as far as it does. Other programs are simulated step by
step, and so are runs that are folded or recorded, and those with rendezvous, with a memory bus, or of 1.0.

Not here: what a network model keeps of messages under way (`describe_event` and the others, in its module).
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import chosen_by_tables, works_on_tables
from et_sim.engine.calendar.clock import let_pass, move_bucket, sort_times
from et_sim.engine.collectives.matching import chunk_of
from et_sim.engine.collectives.members import member_at, phase_key_of, rank_at
from et_sim.engine.collectives.steps import peer_position
from et_sim.engine.collectives.unexpected import find_unexpected, rename_unexpected
from et_sim.engine.observe import facade as observe
from et_sim.engine.state import kinds
from et_sim.engine.state.phase_key import PHASE_KEY_BITS
from et_sim.engine.state.run import LATEST, NEVER, NONE, Run

ENTRIES_OF_A_CHUNK = 4  # in a picture
FEWEST_MESSAGES = 64  # before the first picture
MESSAGES_PER_EVENT = 4  # on the calendar, likewise
QUEUES_PER_MESSAGE, ENTRIES_PER_MESSAGE = 8, 8  # that may be looked at
SORTED_AT_ONCE = 4  # entries that may be looked at for each time
PERIODS = 2  # that a picture waits for, at least, if each event delivers a message


@works_on_tables
def _never(_run: Run) -> bool:
    """A model of which is not known what decides what happens next."""
    return False


@works_on_tables
def _not_described(_run: Run, _at: int, _kind: int, _row: int) -> int:
    return NONE


@works_on_tables
def _differ(_run: Run, _from: int, _to: int, _other_from: int, _other_to: int, _size: int) -> bool:
    return False


@works_on_tables
def _nothing_noted(_run: Run) -> None:
    return


@works_on_tables
def _nothing_counted(_run: Run, _periods: int) -> None:
    return


@works_on_tables
def _event_passes(_run: Run, _kind: int, row: int, _periods: int, _time: int) -> int:
    return row


# Of a network model. (run): whether the calendar and `describe_event` tell what messages decide.
may_repeat = chosen_by_tables("may_repeat", "network", _never)
# (run, entry, kind, row): describe what an event of its own says, and what waits for it, from an entry of the
# picture on; the entry behind it; NONE: it cannot be told, or differs from the picture.
describe_event = chosen_by_tables("describe_event", "network", _not_described)
# (run, rank, rank, rank, rank, bytes): whether a message between the first two goes like one between the others,
# in as long a time, and over links that `turn` like chunks do.
ways_turn = chosen_by_tables("ways_turn", "network", _differ)
# (run): note what has been counted until now.
note_counted = chosen_by_tables("note_counted", "network", _nothing_noted)
# (run, periods): so much is counted again, in each of so many periods.
pass_counted = chosen_by_tables("pass_counted", "network", _nothing_counted)
# (run, kind, row, periods, time): so many periods pass for what an event of its own is about; what it is about
# then.
pass_event = chosen_by_tables("pass_event", "network", _event_passes)


@works_on_tables
def looks_anew(run: Run) -> None:
    """Something has begun or ended: what happens from now on may repeat itself, in a while."""
    if observe.is_watched(run) or not run.repeats[0].is_on:
        return
    repeats = run.repeats[0]
    repeats.is_pictured = repeats.patience = 0
    repeats.since = run.clock[0].delivered
    repeats.due = repeats.since + FEWEST_MESSAGES


@works_on_tables
def look(run: Run) -> None:
    """At the beginning of an instant: see whether all is as on the picture, or take one, if it is time to."""
    if not observe.is_watched(run) and run.clock[0].delivered >= run.repeats[0].due:
        _look(run)


@works_on_tables
def _look(run: Run) -> None:
    repeats, clock = run.repeats[0], run.clock[0]
    if not may_repeat(run):
        repeats.is_on, repeats.due = 0, NEVER
        return
    pending = len(run.events) - clock.free_events.rows
    if repeats.is_pictured and clock.delivered < repeats.expires:
        if pending != repeats.pending or clock.times != repeats.times:
            return
        if _describe(run, True):
            _pass_periods(run)
            looks_anew(run)
        else:
            repeats.due = clock.delivered + repeats.entries // ENTRIES_PER_MESSAGE
        return
    least = MESSAGES_PER_EVENT * pending + len(run.queues) // QUEUES_PER_MESSAGE
    if clock.delivered < repeats.since + least:
        repeats.due = repeats.since + least
        return
    repeats.patience = max(2 * repeats.patience, PERIODS * least, FEWEST_MESSAGES)
    repeats.expires = clock.delivered + repeats.patience
    repeats.is_pictured = _describe(run, False)
    if repeats.is_pictured:
        repeats.pending, repeats.times = pending, clock.times
        repeats.picture_ns, repeats.picture_delivered = clock.now, clock.delivered
        note_counted(run)
    else:
        repeats.due = repeats.expires


@works_on_tables
def put(run: Run, at: int, value: int) -> int:
    """Put a value into the picture, or compare it; the entry behind it; NONE: it differs, or does not fit."""
    repeats = run.repeats[0]
    repeats.entries = max(at, repeats.entries)
    if at == NONE or at == len(run.picture):
        return NONE
    if repeats.compares:
        return at + 1 if run.picture[at] == value else NONE
    run.picture[at] = value
    return at + 1


@works_on_tables
def chunk_in(run: Run, member: int, phase_key: int) -> int:
    """The chunk of a member that runs in a phase; NONE: none does."""
    row = chunk_of(run, member, phase_key >> PHASE_KEY_BITS)
    if row != NONE and run.chunks[row].started and phase_key_of(run.chunks[row]) == phase_key:
        return row
    return NONE


@works_on_tables
def put_step(run: Run, at: int, member: int, step_key: int, phase_key: int) -> int:
    """Put a message of a step into the picture: how far it is from the step that its chunk is at."""
    chunk_row = chunk_in(run, member, phase_key)
    at = put_turned(run, run.chunks, at, chunk_row)
    if chunk_row != NONE:
        return put(run, at, step_key - 2 * run.chunks[chunk_row].sent)
    return put(run, put(run, put(run, at, member), phase_key), step_key)


@works_on_tables
def pass_step(run: Run, step: Any, periods: int) -> None:
    """Such a message, of which `a`, `b` and `c` tell, is for another step when periods have passed."""
    chunk_row = chunk_in(run, step.a, step.c)
    if chunk_row != NONE:
        step.b += _steps_passed(run, chunk_row, periods)
        turned = run.chunks[comes_to(run, run.chunks, chunk_row)]
        step.a, step.c = turned.member, phase_key_of(turned)


@works_on_tables
def _steps_passed(run: Run, chunk_row: int, periods: int) -> int:
    """By how much keys of steps grow."""
    return 2 * periods * (run.chunks[chunk_row].sent - run.chunks[chunk_row].sent_before)


@works_on_tables
def put_turned(run: Run, pool: Any, at: int, row: int) -> int:
    """Put a row into the picture; if it has turned, there may be another one now in the place of each."""
    if not run.repeats[0].compares or at == NONE or row == NONE or run.picture[at] == NONE:
        return put(run, at, row)
    return at + 1 if turn(run, pool, run.picture[at], row) else NONE


@works_on_tables
def turn(run: Run, pool: Any, before: int, now: int) -> bool:
    """Note that a row has the place of another, unless it has that of a third or something else has its own."""
    repeats = run.repeats[0]
    if pool[before].turned == repeats.comparison:
        return bool(pool[before].turns_to == now)
    if pool[now].taken == repeats.comparison:
        return False
    pool[before].turns_to, pool[before].turned = now, repeats.comparison
    pool[now].taken = repeats.comparison
    repeats.turns |= before != now
    return True


@works_on_tables
def comes_to(run: Run, pool: Any, row: int) -> int:
    """The row that has the place of another one when all periods have passed."""
    repeats = run.repeats[0]
    if not repeats.turns:
        return row
    if pool[row].turned != repeats.comparison:
        length, ahead = 1, pool[row].turns_to
        while ahead != row:
            length, ahead = length + 1, pool[ahead].turns_to
        for _ in range(repeats.periods % length):
            ahead = pool[ahead].turns_to
        at = row
        for _ in range(length):
            pool[at].comes_to, pool[at].turned = ahead, repeats.comparison
            at, ahead = pool[at].turns_to, pool[ahead].turns_to
    return int(pool[row].comes_to)


@works_on_tables
def _describe(run: Run, compares: bool) -> bool:
    """Take a picture, or see whether all is as on the last one; what is soonest comes first."""
    repeats, clock = run.repeats[0], run.clock[0]
    repeats.compares, repeats.entries, repeats.periods = compares, 0, NEVER
    repeats.turns = repeats.stays = 0
    repeats.comparison += 1
    repeats.ends_ns = run.plan.settings[LATEST] + 1
    if clock.slot == NONE or clock.head != NONE:
        return False
    at = _describe_slot(run, 0, clock.slot)
    if at == NONE or repeats.ends_ns == clock.now:
        return False
    if compares and clock.times > 0 and not _is_next(run, at):
        return False
    sort_times(run)
    repeats.entries += SORTED_AT_ONCE * clock.times
    for row in range(clock.times):
        at = _describe_slot(run, at, run.heap_slot[row])
        if at == NONE:
            return False
    at = _describe_unexpected(run, at)
    if at == NONE or (repeats.turns and not _turn_chunks(run)):
        return False
    return _describe_chunks(run, at) != NONE


@works_on_tables
def _is_next(run: Run, at: int) -> bool:
    """Whether the next instant is as far away as on the picture, or beyond it."""
    slot = run.slots[run.heap_slot[0]]
    if slot.head == NONE or not _repeats(run.events[slot.head].kind):
        return True
    return bool(run.picture[at] == slot.time - run.clock[0].now)


@works_on_tables
def _describe_slot(run: Run, at: int, slot_row: int) -> int:
    """The events of an instant that repeats itself; another one ends the periods, and only such may follow."""
    repeats, slot = run.repeats[0], run.slots[slot_row]
    row = slot.head
    if row == NONE or not _repeats(run.events[row].kind):
        repeats.ends_ns = min(repeats.ends_ns, slot.time)
    is_beyond = slot.time >= repeats.ends_ns
    if not is_beyond:
        repeats.last_ns = slot.time
        at = put(run, at, slot.time - run.clock[0].now)
    while row != NONE and at != NONE:
        at = _describe_event(run, at, row, is_beyond)
        if run.events[row].kind >= kinds.OPENS_BUCKET:
            entry = run.buckets[row].head
            while entry != NONE and at != NONE:
                at = _describe_event(run, at, entry, is_beyond)
                entry = run.events[entry].next
        row = run.events[row].next
    return at if is_beyond else put(run, at, NONE)


@works_on_tables
def _repeats(kind: int) -> bool:
    """Whether periods are made of events of this kind."""
    if kind >= kinds.OPENS_BUCKET:
        kind -= kinds.OPENS_BUCKET
    if kind == kinds.TRANSFER_AT_ENDPOINT or kind == kinds.TRANSFER_READY:
        return True
    return bool(kind == kinds.STEP or kind == kinds.LATE_STEP or kind >= kinds.NETWORK)


@works_on_tables
def _describe_event(run: Run, at: int, row: int, is_beyond: bool) -> int:
    event = run.events[row]
    kind = event.kind
    if _repeats(kind) == is_beyond:
        return NONE
    if is_beyond:
        return at
    at = put(run, at, kind)
    if kinds.NETWORK <= kind < kinds.OPENS_BUCKET:
        return describe_event(run, at, kind - kinds.NETWORK, event.a)
    if kind == kinds.STEP:
        return put_step(run, at, event.a, event.b, event.c)
    at = put_turned(run, run.chunks, at, event.a)
    return put(run, put(run, at, event.c), event.b)


@works_on_tables
def _turn_chunks(run: Run) -> bool:
    """Chunks without events turn as those that send to them do; nothing else may differ among what turns."""
    repeats = run.repeats[0]
    at = repeats.first_chunk
    while run.picture[at] != NONE:
        before = run.picture[at]
        while run.chunks[before].turned == repeats.comparison:
            now, before = _peer(run, run.chunks[before].turns_to), _peer(run, before)
            if before == NONE or now == NONE:
                break
            if run.chunks[before].turned == repeats.comparison:
                if run.chunks[before].turns_to != now:
                    return False
                break
            if not turn(run, run.chunks, before, now):
                return False
        at += ENTRIES_OF_A_CHUNK
    at = repeats.first_chunk
    while run.picture[at] != NONE:
        before = run.picture[at]
        if run.chunks[before].turned != repeats.comparison and not turn(run, run.chunks, before, before):
            return False
        if not _turns_alike(run, before, run.chunks[before].turns_to):
            return False
        at += ENTRIES_OF_A_CHUNK
    return bool(not repeats.stays and len(run.unexpected) == run.clock[0].free_unexpecteds.rows)


@works_on_tables
def _turns_alike(run: Run, before: int, now: int) -> bool:
    """Whether two chunks have come as far, and will do the same with their peers."""
    one, other = run.chunks[before], run.chunks[now]
    repeats, actor = run.repeats[0], run.actors[one.actor]
    if actor.turned == repeats.comparison and actor.turns_to != other.actor:
        return False
    actor.turned, actor.turns_to = repeats.comparison, other.actor
    if not _send_alike(run, before, now):
        return False
    if before == now:
        return True
    if one.program != other.program or one.direction != other.direction:
        return False
    if one.sent != other.sent or one.sent_before != other.sent_before:
        return False
    if one.received != other.received or one.transfers != other.transfers or one.credit != other.credit:
        return False
    if one.waited_ns - one.waited_before != other.waited_ns - other.waited_before:
        return False
    return bool(run.plan.axes[one.axis].endpoint_ns == run.plan.axes[other.axis].endpoint_ns)


@works_on_tables
def _next_step_of(run: Run, row: int) -> int:
    chunk = run.chunks[row]
    return run.plan.programs[chunk.program].step_first + chunk.step


@works_on_tables
def _place_of_peer(run: Run, row: int) -> int:
    """Where along its axis the chunk is that gets its next message."""
    return peer_position(run, row, run.plan.steps[_next_step_of(run, row)].distance, 1)


@works_on_tables
def _peer(run: Run, row: int) -> int:
    """That chunk, if it runs."""
    return chunk_in(run, member_at(run, row, _place_of_peer(run, row)), phase_key_of(run.chunks[row]))


@works_on_tables
def _send_alike(run: Run, one: int, other: int) -> bool:
    """Whether two chunks send to peers that turn like them, and over ways that do."""
    ahead, behind = _peer(run, one), _peer(run, other)
    if ahead != NONE and run.chunks[ahead].turned == run.repeats[0].comparison:
        ahead = run.chunks[ahead].turns_to
    if ahead != behind:
        return False
    ways = _rank_of(run, one), _rank_of_peer(run, one), _rank_of(run, other), _rank_of_peer(run, other)
    return bool(ways_turn(run, *ways, run.plan.steps[_next_step_of(run, one)].bytes))


@works_on_tables
def _rank_of(run: Run, row: int) -> int:
    return run.plan.actors[run.chunks[row].actor].rank


@works_on_tables
def _rank_of_peer(run: Run, row: int) -> int:
    return rank_at(run, row, _place_of_peer(run, row))


@works_on_tables
def _describe_unexpected(run: Run, at: int) -> int:
    """Messages that came early: how many, and, in whatever order, which."""
    count = len(run.unexpected) - run.clock[0].free_unexpecteds.rows
    at = put(run, at, count)
    if count == 0 or at == NONE:
        return at
    if not run.repeats[0].compares:
        for row in range(len(run.unexpected)):
            message = run.unexpected[row]
            if message.member != NONE:
                chunk_row = chunk_in(run, message.member, message.phase_key)
                passed = 0 if chunk_row == NONE else 2 * run.chunks[chunk_row].sent
                at = put(run, put(run, at, message.member), message.phase_key)
                at = put(run, at, message.step_key - passed)
        return at
    for _ in range(count):
        member, phase_key, step_key = run.picture[at], run.picture[at + 1], run.picture[at + 2]
        chunk_row = chunk_in(run, member, phase_key)
        if chunk_row != NONE:
            step_key += 2 * run.chunks[chunk_row].sent
        if find_unexpected(run, member, step_key, phase_key) == NONE:
            return NONE
        at += 3
    return at


@works_on_tables
def _describe_chunks(run: Run, at: int) -> int:
    """All that run, by their queues, in which these stand in front; the picture ends behind them."""
    run.repeats[0].first_chunk = at
    for queue_row in range(len(run.queues)):
        queue = run.queues[queue_row]
        row = queue.head if queue.running > 0 else NONE
        while row != NONE and row != queue.waiting:
            at = _describe_chunk(run, at, row)
            if at == NONE:
                return NONE
            row = run.chunks[row].next
    return put(run, at, NONE)


@works_on_tables
def _describe_chunk(run: Run, at: int, row: int) -> int:
    """A chunk whose members all follow one list of steps; NONE: another one."""
    repeats, chunk = run.repeats[0], run.chunks[row]
    program = run.plan.programs[chunk.program]
    has_places = program.tree_first != NONE or program.custom_first != NONE or program.own_steps > 0
    if has_places or program.half > 0:
        return NONE
    at = put(run, at, row)
    at = put(run, at, chunk.transfers - chunk.sent)
    at = put(run, at, chunk.received - chunk.sent)
    at = put(run, at, chunk.credit)
    if repeats.compares:
        repeats.periods = min(repeats.periods, _periods_left(run, chunk, program))
    else:
        chunk.sent_before, chunk.waited_before = chunk.sent, chunk.waited_ns
    return at


@works_on_tables
def _periods_left(run: Run, chunk: Any, program: Any) -> int:
    """For how many periods, after that of the picture, a chunk comes to nothing new."""
    steps = chunk.sent - chunk.sent_before
    if steps <= 0:
        return NEVER
    alike = _alike(run.alike_steps, program.step_first, program.step_period, chunk.sent_before)
    before = chunk.transfers - steps
    alike = min(alike, _alike(run.alike_transfers, program.transfer_first, program.transfer_period, before))
    return min(alike // steps - 1, (program.sends - 1 - chunk.sent) // steps)


@works_on_tables
def _alike(alike: Any, first: int, period: int, passed: int) -> int:
    """How many rows in a row are like the next one, of a list that is gone through again and again."""
    return NEVER if alike[first] >= period else alike[first + passed % period]


@works_on_tables
def _pass_periods(run: Run) -> None:
    """All is as on the picture: let as many periods pass as nothing else happens in."""
    repeats, clock = run.repeats[0], run.clock[0]
    period = clock.now - repeats.picture_ns
    periods = min(repeats.periods, (repeats.ends_ns - 1 - repeats.last_ns) // period)
    if periods <= 0:
        return
    time = periods * period
    repeats.periods = periods
    repeats.comparison += 1
    _pass_slot(run, clock.slot, periods, time)
    for at in range(clock.times):
        if run.heap_time[at] <= repeats.last_ns:
            _pass_slot(run, run.heap_slot[at], periods, time)
    for row in range(len(run.unexpected)):
        message = run.unexpected[row]
        if message.member != NONE:
            chunk_row = chunk_in(run, message.member, message.phase_key)
            if chunk_row != NONE:
                rename_unexpected(run, row, _steps_passed(run, chunk_row, periods))
    at = repeats.first_chunk
    while run.picture[at] != NONE:
        _pass_chunk(run, run.chunks[run.picture[at]], periods)
        at += ENTRIES_OF_A_CHUNK
    pass_counted(run, periods)
    let_pass(run, time, repeats.last_ns)
    messages = periods * (clock.delivered - repeats.picture_delivered)
    clock.delivered += messages
    repeats.skipped += messages


@works_on_tables
def _pass_slot(run: Run, slot_row: int, periods: int, time: int) -> None:
    """What the events of an instant are about is further on; transfers are of chunks, whatever their step."""
    row = run.slots[slot_row].head
    while row != NONE:
        event = run.events[row]
        kind = event.kind
        if kinds.NETWORK <= kind < kinds.OPENS_BUCKET:
            event.a = pass_event(run, kind - kinds.NETWORK, event.a, periods, time)
        elif kind == kinds.STEP:
            pass_step(run, event, periods)
        else:
            event.a = comes_to(run, run.chunks, event.a)
            if kind >= kinds.OPENS_BUCKET:
                _pass_bucket(run, row, time)
        row = event.next


@works_on_tables
def _pass_bucket(run: Run, row: int, time: int) -> None:
    """The bucket that an event opens is that of its chunk's actor."""
    entry = run.buckets[row].head
    while entry != NONE:
        run.events[entry].a = comes_to(run, run.chunks, run.events[entry].a)
        entry = run.events[entry].next
    move_bucket(run, row, run.chunks[run.events[row].a].actor, time)


@works_on_tables
def _pass_chunk(run: Run, chunk: Any, periods: int) -> None:
    program, steps = run.plan.programs[chunk.program], periods * (chunk.sent - chunk.sent_before)
    chunk.sent += steps
    chunk.received += steps
    chunk.transfers += steps
    chunk.step = chunk.sent % program.step_period
    chunk.transfer = chunk.transfers % program.transfer_period
    chunk.waited_ns += periods * (chunk.waited_ns - chunk.waited_before)
