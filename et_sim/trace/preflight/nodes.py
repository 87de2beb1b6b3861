"""Does every node say what its type needs, and nothing that it cannot mean?

One list for checks and runs: a run refuses the first of these faults (`et_sim.plan.nodes`), a check tells
them all. Not here: what only some models of computation and memory need.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from et_sim.basics.units import MOST_BYTES, format_bytes, format_ranks
from et_sim.trace.columns import CollectiveKind, NodeKind, Trace
from et_sim.trace.preflight.problem import Problem, TemplateIndex
from et_sim.trace.splits import has_splits, split_faults


class Fault(NamedTuple):
    """What is wrong with some nodes of a trace."""

    wrong: Any  # a flag per node
    what: str  # the rest of a sentence that begins with the node
    remedy: str

    def sentence(self, trace: Trace) -> str:
        """About the first of the nodes."""
        rows = np.flatnonzero(self.wrong)
        more = f", like {len(rows) - 1} more" if len(rows) > 1 else ""
        return f"{trace.describe(int(rows[0]))} {self.what}{more}"


def value_faults(trace: Trace) -> Iterator[Fault]:
    """Figures that nothing can mean, whatever is made of the node."""
    if (wrong := (trace.comm_bytes > MOST_BYTES) | (trace.tensor_bytes > MOST_BYTES)).any():
        remedy = "correct comm_size or tensor_size, which are in bytes"
        yield Fault(wrong, f"moves more than {format_bytes(MOST_BYTES)}", remedy)
    yield from (Fault(*fault) for fault in split_faults(trace))
    collective = trace.kind == NodeKind.COLL
    if not collective.any():
        return
    known = [int(kind) for kind in CollectiveKind]
    if (wrong := collective & ~np.isin(trace.comm_type, known)).any():
        remedy = f"collective types are {known[0]} to {known[-1]}"
        yield Fault(wrong, "has a comm_type that no collective has", remedy)


def communication_faults(
    trace: Trace, needs: dict[str, Any], *, is_broadcast_replayed: bool
) -> Iterator[Fault]:
    """Attributes that nodes which communicate lack, and those whose models say so in `needs`."""
    send, receive = trace.kind == NodeKind.SEND, trace.kind == NodeKind.RECV
    collective = trace.kind == NodeKind.COLL
    has_no_size = (trace.comm_type == CollectiveKind.BARRIER) | has_splits(trace)
    all_needs = {
        "comm_size": send | receive | (collective & ~has_no_size),
        "comm_type": collective,
        "comm_dst": send,
        "comm_src": receive,
        "comm_tag": send | receive,
    }
    for attribute, which in needs.items():
        all_needs[attribute] = all_needs.get(attribute, False) | which
    replayed = collective & (trace.comm_type == CollectiveKind.BROADCAST) & is_broadcast_replayed
    replayed |= trace.is_unsized
    yield from attribute_faults(trace, {name: which & ~replayed for name, which in all_needs.items()})
    if (wrong := (send | receive | collective) & trace.is_cpu).any():
        remedy = "communication runs on the device: set is_cpu_op to false"
        yield Fault(wrong, "is a communication node marked is_cpu_op", remedy)


def attribute_faults(trace: Trace, needs: dict[str, Any]) -> Iterator[Fault]:
    """Attributes that some nodes lack: by name, which nodes need it."""
    for attribute, which in needs.items():
        if (wrong := which & ~trace.has(attribute)).any():
            yield Fault(wrong, f"lacks the attribute {attribute!r}", "add it when converting")


def check_nodes(index: TemplateIndex, *, communicates: bool, is_broadcast_replayed: bool) -> list[Problem]:
    """One finding per trace and fault; where nothing `communicates`, only figures count."""
    problems = []
    for template in index.used_templates():
        trace, users = index.workload.templates[template], index.ranks_of(template)
        faults = list(value_faults(trace))
        if communicates:
            faults += communication_faults(trace, {}, is_broadcast_replayed=is_broadcast_replayed)
        for fault in faults:
            text = f"{index.place(users)}: {fault.sentence(trace)}"
            problems.append(Problem("error", "node", format_ranks(users), text, fault.remedy))
    return problems
