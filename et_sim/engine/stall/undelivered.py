"""Messages that a network with packets never delivers: packets were lost, or ports pause in a circle.

Not here: messages that were never sent, or that rendezvous holds (`messages`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from et_sim.basics.units import plural
from et_sim.engine.outcome import Outcome, Ports
from et_sim.engine.state.kinds import ASKED_MESSAGE, MESSAGE
from et_sim.engine.state.run import NONE, Run
from et_sim.engine.transport.message_pool import LOWEST_31_BITS


@dataclass(frozen=True, slots=True)
class Undelivered:
    """Messages that are still in the network though nothing happens any more."""

    cause: str = ""  # in one sentence; empty: there are none
    remedy: str = ""
    fate: str = ""  # of such a message, in words
    sends: frozenset[tuple[int, int]] = frozenset()  # of the trace: actor and row
    channels: Counter[int] = field(default_factory=Counter)  # how many messages, or requests for one
    requests: frozenset[int] = frozenset()  # channels


def undelivered(outcome: Outcome) -> Undelivered:
    """What is left of a run; nothing if the network has no packets."""
    ports = outcome.ports
    rows = [] if ports is None else _messages_left(outcome.run)
    if ports is None or not rows:
        return Undelivered()
    held = outcome.run.messages[rows]
    sent, asked = held["kind"] == MESSAGE, held["kind"] == ASKED_MESSAGE
    cause, remedy, fate = _why(ports, len(rows))
    return Undelivered(
        cause,
        remedy,
        fate,
        frozenset(zip((held["c"][sent] & LOWEST_31_BITS).tolist(), held["b"][sent].tolist(), strict=True)),
        Counter(held["a"][sent | asked].tolist()),
        frozenset(held["a"][asked].tolist()),
    )


def _messages_left(run: Run) -> list[int]:
    """Rows of the pool of messages that are not free."""
    in_use: Any = np.ones(len(run.messages), bool)
    row = int(run.clock[0].free_messages.head)
    while row != NONE:
        in_use[row] = False
        row = int(run.messages["next"][row])
    return [int(row) for row in np.flatnonzero(in_use)]


def _why(ports: Ports, messages: int) -> tuple[str, str, str]:
    """(the cause, its remedy, what became of the messages)."""
    stay = f"{plural(messages, 'message')} never {'arrives' if messages == 1 else 'arrive'}"
    lost, pauses = ports.totals["lost"], ports.totals["pauses"]
    if lost:
        most = ports.resources.port_names[ports.resources.port[int(np.argmax(ports.columns["lost"]))]]
        were = f"{plural(lost, 'packet')} {'was' if lost == 1 else 'were'} lost, most at {most}"
        other = "a larger buffer" if pauses else "pauses: true"
        return (
            f"{stay}: {were}, and nobody sends again what is missing",
            f"give protocol a retransmission-timeout, or {other}",
            "of which packets were lost",
        )
    circle = f": {', '.join(ports.circle)}, and so on" if ports.circle else ""
    return (
        f"{stay}: ports that were told to pause wait for each other{circle}",
        "give protocol a larger buffer, or pauses: false and a retransmission-timeout",
        "whose packets wait at ports that pause",
    )
