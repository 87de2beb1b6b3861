"""The outcome of a run, for the tables made of it and for the explanation of a stall.

The load of each link has its bytes and, where nothing has a capacity, the time they take. Network models that
count the bytes of their links have `carried`; otherwise the load is known if links were recorded.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from et_sim.engine.state.resources import ResourceTable
from et_sim.engine.state.run import Run
from et_sim.engine.state.traffic_tables import PER_LINK
from et_sim.engine.transport.network_seam import LostMessages, NetworkModel
from et_sim.machine.model import Network
from et_sim.plan.records import LoweredPlan

if TYPE_CHECKING:
    from et_sim.engine.blocked import Blocked
    from et_sim.engine.state.queue_tables import Queues


class Ports(Struct, frozen=True, eq=False):
    """Packets at the ports of a network: a row for each link, at its sending end."""

    resources: ResourceTable
    columns: dict[str, Any]  # by their names in ports.arrow
    totals: dict[str, Any]  # of the run
    circle: tuple[str, ...] = ()  # ports that pause and wait for each other at its end


class NetworkLoad(Struct, frozen=True, eq=False):
    """The load of each resource of the network."""

    resources: ResourceTable
    bytes: Any
    busy_ns: Any  # of messages one after the other
    switches_ns: dict[str, float]  # by class of switches that reduce: how long the busiest worked at its rate


class Outcome(Struct, frozen=True, eq=False, dict=True):
    """The outcome of a run. Node columns follow the plan: actor by actor, row by row."""

    plan: LoweredPlan
    nodes: Any  # NODE_STATE records without their heaps
    finish_ns: Any  # per actor; NONE: never finished
    busy_ns: Any  # per actor: time its compute nodes took, summed
    end_ns: int  # time of the last event
    messages: int
    run: Run
    resources: ResourceTable | None  # of the network, if recorded columns refer to them
    has_contention: bool  # messages wait for each other
    load: NetworkLoad | None  # of links, if it was counted
    ports: Ports | None = None  # if the network has packets
    queues: Queues | None = None  # packets at ports over time, if recorded
    lost: LostMessages | None = None  # messages whose path stayed dead
    network: Network | None = None  # if parts of it fail
    waits_ns: tuple[int, ...] = ()  # by failure, the longest of a message that lost bytes; 0: none did
    blocked: tuple[Blocked, ...] = ()  # queues of collectives that waited for each other

    @property
    def failures(self) -> list[dict[str, Any]]:
        """Return the parts that fail within the run, as plain values."""
        failures = () if self.network is None else self.network.failures
        slow = self.plan.slow
        return [
            {
                "part": failure.text,
                "at_ns": failure.at_ns,
                "until_ns": failure.until_ns,
                "left": failure.left,
                "links": len(failure.links),
                "waited_ns": waited,
            }
            for failure, waited in zip((*failures, *slow), (*self.waits_ns, *(0 for _ in slow)), strict=True)
        ]

    @cached_property
    def is_complete(self) -> bool:
        """Return whether every actor finished."""
        return bool((self.finish_ns >= 0).all())


def ports_of(model: NetworkModel, network: Network, plan: LoweredPlan, run: Run) -> Ports | None:
    """Return the counts of a model with packets at its ports; None for other models."""
    count, circle = model.ports_counted, model.ports_in_a_circle
    if count is None:
        return None
    resources = model.resources(network, plan)
    rows = [] if circle is None else circle(run.network)
    names = tuple(resources.port_names[resources.port[row]] for row in rows)
    columns, totals = count(run.network)
    return Ports(resources, columns, totals, names)


def load_of(
    model: NetworkModel, network: Network, plan: LoweredPlan, run: Run, known: ResourceTable | None
) -> NetworkLoad | None:
    """Return the load of a run's links; None if it was not counted. `known`: the resources, if available."""
    carried, slices = model.carried, run.traffic.slices
    if carried is not None:
        resources = known or model.resources(network, plan)
        switches_ns = _of_switches(plan, run, network.fraction_bits)
        of_each = of_each_link(resources, carried(run.network))
        return NetworkLoad(resources, of_each, np.zeros(len(resources), np.int64), switches_ns)
    if known is None or not len(slices):
        return None
    per_link = slices.reshape(-1, int(run.traffic.grid[PER_LINK]))
    per_link = per_link[: len(known)]  # behind them come the units of a memory pool
    busy_ns = per_link["busy_ns"].sum(axis=1) >> network.fraction_bits
    switches_ns = _of_switches(plan, run, network.fraction_bits)
    of_each = of_each_link(known, per_link["bytes"].sum(axis=1))
    return NetworkLoad(known, of_each, busy_ns, switches_ns)


def of_each_link(resources: ResourceTable, carried: Any) -> Any:
    """Return the load of each link, of the loads of trunks."""
    return carried if resources.members is None else carried / resources.members


def _of_switches(plan: LoweredPlan, run: Run, bits: int) -> dict[str, float]:
    if not plan.switch_classes:
        return {}
    switches, longest = plan.switches, np.zeros(len(plan.switch_classes))
    work = run.switches["bytes"][switches["server"]] / switches["bytes_per_ns"] / (1 << bits)
    np.maximum.at(longest, switches["sort"], work)
    return dict(zip(plan.switch_classes, longest.tolist(), strict=True))
