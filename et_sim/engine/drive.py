"""Driving a run from start to end: Python's side of the event loop.

Not here: explaining a run that got stuck (`stall`), and turning columns into tables (`timeline`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.engine.loop import FINISHED, NEEDS_ROOM, TIED, TOO_LATE, simulate
from et_sim.engine.room import (
    hand_over,
    hand_over_messages,
    hand_over_phases,
    make_room,
    moments_per_event,
    reserve_per_event,
)
from et_sim.engine.state import Run, new_run
from et_sim.engine.traffic_tables import new_traffic
from et_sim.engine.transport import REQUEST_BYTES
from et_sim.errors import InputError
from et_sim.machine.model import Network
from et_sim.network import analytical, link
from et_sim.network.speeds import speed_names
from et_sim.network.tables import Model, NetworkTables, check_reach, numbered_links
from et_sim.plan.fractions import in_fractions
from et_sim.plan.tables import Plan
from et_sim.units import format_ns

EVENTS_BETWEEN_REPORTS = 2_000_000

# now_ns, messages delivered, messages expected, nodes completed, nodes in all
Report = Callable[[int, int, int, int, int], None]


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What a run leaves behind. Node columns follow the plan: actor by actor, row by row."""

    plan: Plan
    nodes: Any  # NODE_STATE records
    finish_ns: Any  # per actor; NONE: never finished
    busy_ns: Any  # per actor: time its compute nodes took, summed
    end_ns: int  # when the last thing happened
    messages: int
    run: Run
    link_names: tuple[str, ...]  # of the record of causes
    links: list[dict[str, Any]]  # and how it numbers single links

    @property
    def is_complete(self) -> bool:
        """Whether every actor finished."""
        return bool((self.finish_ns >= 0).all())


def run_plan(
    plan: Plan,
    network: Network,
    report: Report | None = None,
    model: Model = Model.ANALYTICAL,
    record: Callable[[Any], None] | None = None,
    log: Callable[[Any], None] | None = None,
    messages: Callable[[Any], None] | None = None,
    links: bool = False,
) -> Outcome | None:
    """Simulate a plan until nothing is left to happen.

    `record` takes the moments of the run (`causes`), `log` what became of its chunks, phase by phase, and
    `messages` those that were sent. With `links`, it is noted how busy these are (`link_slices`).

    None: some actors do not behave like all their ranks (`ties`), so a plan of ranks must be run instead.
    """
    bits = network.fraction_bits
    in_units = in_fractions(plan, bits)
    reserve = reserve_per_event(in_units)
    moments = moments_per_event(in_units, reserve, network) if record else 0
    tables = _prepare(in_units, network, model)
    traffic = new_traffic(in_units, tables, reserve.rows if messages else 0, links=links, bits=bits)
    run = new_run(in_units, tables, traffic, moments, reserve.rows if log else 0)
    expected = plan.expected_messages if report else 0
    while True:
        status = simulate(run, *reserve, EVENTS_BETWEEN_REPORTS)
        if record:
            hand_over(run, record, bits)
        if log:
            hand_over_phases(run, log, bits)
        if messages:
            hand_over_messages(run, messages, bits)
        if status == FINISHED:
            break
        if status == TIED:
            return None
        if status == TOO_LATE:
            raise InputError(
                f"simulated time passed {format_ns(in_units.latest >> bits)}",
                place=f"after {int(run.clock[0].delivered)} messages",
                remedy="durations in traces are microseconds, sizes bytes: is a unit wrong?",
            )
        if status == NEEDS_ROOM:
            run = make_room(run, reserve)
        elif report:
            clock = run.clock[0]
            report(clock.now >> bits, clock.delivered, expected, clock.completed, len(run.nodes))
    clock = run.clock[0]
    for column in ("ready_ns", "start_ns", "end_ns") if bits else ():
        run.nodes[column] >>= bits  # NONE stays what it is
    return Outcome(
        plan=plan,
        nodes=run.nodes,
        finish_ns=np.array(run.actors["finish_ns"], np.int64) >> bits,
        busy_ns=np.array(run.actors["busy_ns"], np.int64) >> bits,
        end_ns=int(clock.now) >> bits,
        messages=_messages(plan, run),
        run=run,
        link_names=speed_names(network) if record else (),
        links=numbered_links(tables) if record or links else [],
    )


def _messages(plan: Plan, run: Run) -> int:
    """Messages delivered, to all ranks."""
    if not plan.is_folded:
        return int(run.clock[0].delivered)
    ranks_per_actor = np.bincount(plan.actor_of_rank, minlength=len(plan.actors))
    return int((run.actors["messages"] * ranks_per_actor).sum())


def _prepare(plan: Plan, network: Network, model: Model) -> NetworkTables:
    columns = (plan.steps, plan.channels)
    sizes = [int(column["bytes"].max(initial=REQUEST_BYTES)) for column in columns]
    sizes += [int(plan.trees[name].max(initial=0)) for name in ("up_bytes", "down_bytes")]
    check_reach(network, max(sizes))
    if model is Model.LINK:
        return link.prepare(network, plan.actor_of_rank)
    return analytical.prepare(network, plan.programs, plan.steps)
