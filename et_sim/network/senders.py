"""Senders whose bytes are lost: they notice after the time of a try, and try again until they give up.

A try looks for a path: switches may lead around the dead link by then, or it may be repaired. After the last
one, the sender gives up, or takes another port with fail-over.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.containers import NONE
from et_sim.machine.model import Network
from et_sim.plan.records import record, table

RECOVERY = record(  # empty: nothing fails
    ("detection_ns", "i8"),  # time of a try
    ("tries", "i8"),  # before a sender gives up
    ("probe_ns", "i8"),  # from then to the other port; NONE: there is no fail-over
    ("watchdog_ns", "i8"),  # longest wait
)


def recovery_row(network: Network) -> Any:
    """Return the rules of senders in the unit of time of a run; empty if nothing fails."""
    row = table(RECOVERY, 1 if network.failures else 0)
    units, recovery = 1 << network.fraction_bits, network.recovery
    for rules in row:
        rules.detection_ns, rules.tries = int(recovery.detection_ns) * units, recovery.retries + 1
        rules.probe_ns = int(recovery.probe_ns) * units if recovery.fail_over else NONE
        rules.watchdog_ns = int(recovery.watchdog_ns) * units
    return row


@works_on_tables
def next_try_ns(recovery: Any, lost_ns: int, tries: int) -> int:
    """Return when a sender looks for a path again after so many tries; NONE: it gives up."""
    last = lost_ns + recovery.tries * recovery.detection_ns
    if tries < recovery.tries:
        time = lost_ns + (tries + 1) * recovery.detection_ns
    elif tries == recovery.tries and recovery.probe_ns != NONE:
        time = last + recovery.probe_ns
    else:
        return NONE
    return int(min(time, lost_ns + recovery.watchdog_ns))


@works_on_tables
def is_late(recovery: Any, lost_ns: int, now: int) -> bool:
    """Return whether the watchdog ends the wait."""
    return bool(now >= lost_ns + recovery.watchdog_ns)


@works_on_tables
def sends_again(recovery: Any, lost_ns: int, tries: int, now: int) -> bool:
    """Return whether a try sends; else the transport or the watchdog reports an error at its time."""
    return tries != recovery.tries and not is_late(recovery, lost_ns, now)
