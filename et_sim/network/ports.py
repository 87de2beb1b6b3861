"""The analytical network whose ports carry no more than they can: links in turn, which cut through.

A message alone takes the latencies of all links on its way and one serialisation, on the slowest of them, as
on the flow model. Every port, which is an end of a link, carries the messages of one direction one after the
other, in the order they came. It stands for the analytical model where the correction PORT_BANDWIDTH is made.

Not here: the mechanism (`link_queues`), and the links (`link`, `graph_links`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from et_sim.compiled.tables_by_reference import Tables
from et_sim.machine.model import Network
from et_sim.network import link
from et_sim.plan.tables import Plan

HAS_CONTENTION = True
REACHES_SWITCHES = True
check, resources, carried = link.check, link.resources, link.carried
path_keys, needs, inject = link.path_keys, link.needs, link.inject


def tables(network: Network, plan: Plan) -> Tables:
    """All links, idle."""
    found: Any = link.tables(network, plan)
    cuts_through: Tables = replace(found, cuts_through=np.ones(1, np.int8))
    return cuts_through
