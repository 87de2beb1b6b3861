"""Causes of messages: links, flights, and waits for a message or for a link.

Idle unless causes are recorded (`causes`).
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.containers import give_row, join, leave, take_row
from et_sim.engine.observe.causes import (
    BOUND,
    LATENCY,
    LINK,
    LINK_QUEUE,
    NOTHING,
    RECEIVE,
    REQUEST,
    SERIALISATION,
    SWITCH,
    SWITCH_RATE,
    causal_event_at,
    current_cause,
    describes_causes,
    event_made,
    join_cause,
    needs_waiting,
    new_causal_event,
    when_recorded,
)
from et_sim.engine.observe.observers import observes
from et_sim.engine.state.kinds import STEP
from et_sim.engine.state.run import NONE, Run


@when_recorded
def describe_latency(run: Run, link: int, time: int) -> None:
    """Describe a latency until `time`, before the next event."""
    _takes_first(run, LATENCY, link, time)


@when_recorded
def describe_serialisation(run: Run, link: int, time: int) -> None:
    """Describe serialisation until `time`, before the next event."""
    _takes_first(run, SERIALISATION, link, time)


@when_recorded
def describe_beside(run: Run, link: int, cause: int, cause_ns: int, time: int) -> None:
    """Describe, besides the causes so far, a link that passes bytes from another event until `time`."""
    _takes_beside(run, SERIALISATION, link, cause, cause_ns, time)


@when_recorded
def describe_rate_beside(run: Run, switch_class: int, cause: int, cause_ns: int, time: int) -> None:
    """Describe, besides the causes so far, reducing switches of a class that pass bytes at their rate."""
    _takes_beside(run, SWITCH_RATE, switch_link(switch_class), cause, cause_ns, time)


@works_on_tables
def _takes_beside(run: Run, kind: int, link: int, cause: int, cause_ns: int, time: int) -> None:
    if time > cause_ns:
        so_far, until = described_so_far(run), described_until(run)
        describe_from(run, cause, cause_ns)
        _takes_first(run, kind, link, time)
        if until > cause_ns:
            describe_bound(run, so_far, until)


@works_on_tables
def _takes_first(run: Run, kind: int, link: int, time: int) -> None:
    now = run.causes.now[0]
    if now.after == NONE:
        now.after, now.after_ns = now.cause, run.clock[0].now
    now.link = link
    now.after = new_causal_event(run, now.after, NONE, kind, now.after_ns, time)
    now.after_ns = time


@observes(describes_causes, otherwise=NONE)
def link_serialises(run: Run, link_row: int, link_class: int, serial_ns: int) -> int:
    """Record that a message occupies a link from now on; return the causal event at which it is through."""
    now, begin = run.causes.now[0], run.clock[0].now
    now.link, now.resource = link_class, link_row
    through = new_causal_event(run, now.cause, NONE, SERIALISATION, begin, begin + serial_ns)
    now.link = now.resource = NONE
    return through


@when_recorded
def next_event_follows(run: Run, cause: int, cause_ns: int) -> None:
    """Describe the next event as following another causal event than the present one, at its time."""
    follow(run, cause, cause_ns, NOTHING, NONE)


@when_recorded
def next_event_flies(run: Run, cause: int, cause_ns: int, link: int) -> None:
    """Describe the next event as following another causal event than the present one, after a latency."""
    follow(run, cause, cause_ns, LATENCY, link)


@works_on_tables
def follow(run: Run, cause: int, cause_ns: int, kind: int, link: int) -> None:
    """Describe the next event as following another causal event; `kind` takes the rest of the time."""
    now = run.causes.now[0]
    now.after, now.after_ns, now.kind, now.link = cause, cause_ns, kind, link


@when_recorded
def next_event_is_serialised(run: Run, link: int) -> None:
    """Charge the time until the next event to serialisation."""
    run.causes.now[0].kind, run.causes.now[0].link = SERIALISATION, link


@works_on_tables
def described_so_far(run: Run) -> int:
    """Return the causal event to which the causes described so far lead."""
    now = run.causes.now[0]
    return now.cause if now.after == NONE else now.after


@works_on_tables
def described_until(run: Run) -> int:
    """Return the time of the causal event described so far."""
    now = run.causes.now[0]
    return run.clock[0].now if now.after == NONE else now.after_ns


@works_on_tables
def describe_from(run: Run, cause: int, cause_ns: int) -> None:
    """Begin the following descriptions at another causal event."""
    run.causes.now[0].after, run.causes.now[0].after_ns = cause, cause_ns


@works_on_tables
def describe_bound(run: Run, cause: int, cause_ns: int) -> None:
    """Describe the next event as following the causes described so far and another causal event."""
    now = run.causes.now[0]
    now.link = NONE
    if now.after_ns > cause_ns:
        now.after = new_causal_event(run, now.after, cause, BOUND, now.after_ns, now.after_ns)
    else:
        now.after = new_causal_event(run, cause, now.after, BOUND, cause_ns, cause_ns)
        now.after_ns = cause_ns


@when_recorded
def message_queues(run: Run, row: int, link_row: int) -> None:
    """Keep the cause of a message that begins to wait for a link."""
    kept = run.causes.messages[row]
    kept.cause, kept.node = run.causes.now[0].cause, run.causes.now[0].node


@works_on_tables
def message_shares(run: Run, row: int) -> None:
    """Keep the cause of a message that begins to share links with others."""
    message_queues(run, row, NONE)


@observes(describes_causes, otherwise=NONE)
def message_limited(run: Run, row: int, link_row: int, link_class: int, begin: int, end: int) -> int:
    """Record that a message that shared a link is through; return the causal event at which it is."""
    now, kept = run.causes.now[0], run.causes.messages[row]
    now.link, now.resource, now.node = link_class, link_row, kept.node
    through = new_causal_event(run, kept.cause, NONE, SERIALISATION, begin, end)
    now.link = now.resource = NONE
    return through


@works_on_tables
def message_cause(run: Run, row: int) -> int:
    """Return the causal event at which a message set out."""
    return int(run.causes.messages[row].cause)


@works_on_tables
def message_part(
    run: Run, row: int, after: int, kind: int, link_class: int, link_row: int, begin: int, end: int
) -> int:
    """Record a part of a message's time, after another one; return the causal event at which it ends."""
    if end <= begin:
        return after
    now = run.causes.now[0]
    now.link, now.resource, now.node = link_class, link_row, run.causes.messages[row].node
    part = new_causal_event(run, after, NONE, kind, begin, end)
    now.link = now.resource = NONE
    return part


@when_recorded
def message_dequeued(run: Run, row: int, link_row: int) -> None:
    """Record that a message goes on over a link that it had to wait for."""
    kept = run.causes.messages[row]
    run.causes.now[0].node = kept.node
    join_cause(run, kept.cause, LINK_QUEUE, link_row)


@when_recorded
def link_freed(run: Run, link: Any, link_row: int, actor_row: int) -> None:
    """Keep the cause by which a link became free."""
    run.causes.links[link_row] = current_cause(run)


@when_recorded
def link_was_free(run: Run, link_row: int) -> None:
    """Add the message before on a link, which is free, as a cause."""
    join_cause(run, run.causes.links[link_row], LINK, link_row)


@when_recorded
def switch_taken(run: Run, switch_row: int, begin: int, end: int) -> None:
    """Record that a switch forwards the next event's message from `begin` to `end`, before its latency."""
    switch, now = run.plan.switches[switch_row], run.causes.now[0]
    free, through, link = run.causes.switches[switch.server], now.cause, switch_link(switch.sort)
    if begin > run.clock[0].now:
        through = new_causal_event(run, free, now.cause, BOUND, begin, begin)
    elif free != NONE and end > begin:
        through = new_causal_event(run, now.cause, free, BOUND, begin, begin)
    if end > begin:
        now.link = link
        through = new_causal_event(run, through, NONE, SWITCH_RATE, begin, end)
        run.causes.switches[switch.server] = through
    follow(run, through, end, SWITCH, link)


@when_recorded
def switch_delays(run: Run, switch_class: int) -> None:
    """Describe the next event as following after the latency of a switch that reduces."""
    follow(run, run.causes.now[0].cause, run.clock[0].now, SWITCH, switch_link(switch_class))


@works_on_tables
def switch_link(switch_class: int) -> int:
    """Return the number of a class of switches among classes of links: below NONE."""
    return NONE - 1 - switch_class


@when_recorded
def message_unexpected(run: Run, row: int) -> None:
    """Keep the cause of a message, an offer or a request of a step that waits for its counterpart."""
    kept = run.causes.unexpected[row]
    kept.cause, kept.node = run.causes.now[0].cause, run.causes.now[0].node


@when_recorded
def unexpected_on_its_way(run: Run, row: int, arrival: int) -> None:
    """Keep the future causal event of a step's message for which no receive is posted."""
    run.causes.unexpected[row].cause = causal_event_at(run, arrival, STEP)


@when_recorded
def early_step_scheduled(run: Run, row: int) -> None:
    """Describe the arrival of such a message, which may be in the past."""
    arrival = run.unexpected[row].arrives_ns
    if arrival > run.clock[0].now:
        next_event_follows(run, run.causes.unexpected[row].cause, arrival)
    else:
        _needs_unexpected(run, row, RECEIVE)


@works_on_tables
def _needs_unexpected(run: Run, row: int, kind: int) -> None:
    join_cause(run, run.causes.unexpected[row].cause, kind, NONE)


@when_recorded
def offer_was_requested(run: Run, row: int) -> None:
    """Add the request of an offered message as a cause."""
    _needs_unexpected(run, row, REQUEST)


@when_recorded
def offer_sent(run: Run, row: int) -> None:
    """Record that an offered message is sent, for the node that offered it."""
    run.causes.now[0].node = run.causes.unexpected[row].node
    _needs_unexpected(run, row, REQUEST)


@when_recorded
def message_early(run: Run, channel_row: int) -> None:
    """Keep the cause of a message that came before its receive."""
    _keep_early(run, run.causes.channels[channel_row])


@when_recorded
def receive_meets_early(run: Run, channel_row: int) -> None:
    """Add the arrival of an early message as a cause of its receive."""
    _needs_early(run, run.causes.channels[channel_row], RECEIVE)


@when_recorded
def request_early(run: Run, handshake_row: int) -> None:
    """Keep the cause of a request that came before its message."""
    _keep_early(run, run.causes.handshakes[handshake_row])


@when_recorded
def send_meets_early(run: Run, handshake_row: int) -> None:
    """Add the early request of a message as a cause of its start."""
    _needs_early(run, run.causes.handshakes[handshake_row], REQUEST)


@works_on_tables
def _keep_early(run: Run, fifo: Any) -> None:
    """Queue an event without a time that represents an early message or request."""
    row = take_row(run.events, run.clock[0].free_events)
    event_made(run, row)
    join(run.events, fifo, row)


@works_on_tables
def _needs_early(run: Run, fifo: Any, kind: int) -> None:
    """Add the first of those that came early as a cause."""
    row = leave(run.events, fifo)
    needs_waiting(run, row, kind, NONE)
    give_row(run.events, run.clock[0].free_events, row)


@works_on_tables
def message_met(run: Run, event_row: int) -> None:
    """Record that a message completes a receive that waited for it."""
    needs_waiting(run, event_row, RECEIVE, NONE)


@works_on_tables
def held_send_starts(run: Run, event_row: int) -> None:
    """Record that the request of a message that was held back has arrived."""
    needs_waiting(run, event_row, REQUEST, NONE)
