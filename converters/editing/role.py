"""One recorded rank that stands for all ranks of its job: which one it is, and whether it can.

Not here: its groups, as rules (`group_rules`).
"""

from __future__ import annotations

import numpy as np

from converters.editing.inputs import Input
from converters.editing.plans import PlanChange
from et_sim.basics.errors import UsageError
from et_sim.trace.columns import NodeKind
from et_sim.trace.schema import messages


def read_role(given: Input, plan: PlanChange, rank: int | None) -> int:
    """The number of the recorded rank among those of the plan; by default what the trace says of itself."""
    (recorded,) = given.traces
    header = messages().GlobalMetadata.FromString(recorded.header)
    says = {one.name: one.string_val for one in header.attr}
    if rank is None and says.get("rank", "").isdecimal():
        rank = int(says["rank"])
    world = says.get("world_size", "")
    if world.isdecimal() and int(world) not in (1, plan.ranks):
        raise UsageError(
            f"is one of {int(world):,} ranks, and --from are {plan.ranks:,}",
            place=recorded.source,
            remedy="give every axis that has several places",
        )
    if rank is None or not 0 <= rank < plan.ranks:
        cause = "does not say which rank it is" if rank is None else f"is rank {rank}"
        raise UsageError(
            f"{cause} of the {plan.ranks:,} of --from",
            place=recorded.source,
            remedy=f"give --rank R, from 0 to {plan.ranks - 1}",
        )
    sends = bool(np.isin(recorded.trace.kind, (NodeKind.SEND, NodeKind.RECV)).any())
    if sends or any(axis.name == "pp" and axis.size > 1 for axis in plan.views[0]):
        what = "sends or receives messages" if sends else "is of one stage of several"
        raise UsageError(
            f"{what}, so that other ranks do something else than it",
            place=recorded.source,
            remedy="convert one rank of each kind, and run what there is with --alone",
        )
    return rank
