"""Messages of collectives that arrive before their receive is posted.

A message is named by the seat it goes to, the stage (sequence and phase) and the label (step and
direction) of its sender. Few are ever parked at a time: ranks that run in step park none.
"""

from __future__ import annotations

from et_sim.engine.state import NONE, Run
from et_sim.tables_by_reference import works_on_tables


@works_on_tables
def parked_home(run: Run, seat: int, label: int, stage: int) -> int:
    """Where the search for a parked message begins."""
    return (seat * 7919 ^ label * 31 ^ stage ^ (stage >> 8)) & (len(run.parked_index) - 1)


@works_on_tables
def park(run: Run, seat: int, label: int, stage: int) -> None:
    """Keep a message until its receive is posted."""
    clock = run.clock[0]
    row = clock.free_parked
    message = run.parked[row]
    clock.free_parked = message.chain
    clock.free_parkeds -= 1
    clock.parked += 1
    home = parked_home(run, seat, label, stage)
    message.seat = seat
    message.step = label
    message.stage = stage
    message.chain = run.parked_index[home]
    run.parked_index[home] = row
    run.seats[seat].parked += 1


@works_on_tables
def take_parked(run: Run, seat: int, label: int, stage: int) -> bool:
    """Remove a parked message; False if it is not here."""
    home = parked_home(run, seat, label, stage)
    before, row = NONE, run.parked_index[home]
    while row != NONE:
        message = run.parked[row]
        if message.seat == seat and message.step == label and message.stage == stage:
            break
        before, row = row, message.chain
    if row == NONE:
        return False
    message = run.parked[row]
    if before == NONE:
        run.parked_index[home] = message.chain
    else:
        run.parked[before].chain = message.chain
    clock = run.clock[0]
    message.seat = NONE
    message.chain = clock.free_parked
    clock.free_parked = row
    clock.free_parkeds += 1
    clock.parked -= 1
    run.seats[seat].parked -= 1
    return True
