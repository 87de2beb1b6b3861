"""Columns of the timeline that follow from the nodes of a plan, whatever happens to them in a run."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics import intervals
from et_sim.basics.intervals import COMPUTE, HOST, MEMORY, TRANSFER
from et_sim.engine.state.run import NONE
from et_sim.plan.records import LANES, Action, Lane, LoweredPlan
from et_sim.tables.declaration import COPY, OPAQUE_KINDS
from et_sim.trace.columns import CollectiveKind, NodeKind, Trace
from et_sim.trace.workload import Workload

LANE_NAMES = ("cpu", "compute", "communication", "receive", "send", "memory", "collective")
# The lane shown: that a node is concurrent no longer matters, and streams are a column.
_SHOWN_LANE = np.arange(len(Lane), dtype=np.uint8)
_SHOWN_LANE[[Lane.FREE_CPU, Lane.FREE_COMPUTE, Lane.FREE_SEND]] = Lane.CPU, Lane.COMPUTE, Lane.SEND
NODE_KIND_NAMES = ("invalid", "metadata", "memory_load", "memory_store", "compute", "send", "receive")
COLLECTIVE_NAMES = tuple(kind.name.lower() for kind in CollectiveKind)
UNNAMED_KIND = "communication"  # a collective of unknown type
HOST_KIND_NAMES = ("host", "gap")  # computation of the trace that no device does
KIND_NAMES = NODE_KIND_NAMES + COLLECTIVE_NAMES + HOST_KIND_NAMES + OPAQUE_KINDS + (UNNAMED_KIND, COPY)
MEMORY_KINDS = ("memory_load", "memory_store")
COMMUNICATION_KINDS = ("send", "receive", *COLLECTIVE_NAMES, UNNAMED_KIND)


class SharedColumns(Struct, frozen=True, eq=False):
    """Columns of nodes of the plan that are equal for all actors of a template."""

    base: Any  # the first row of their template in the plan's table
    at: Any  # their own rows there
    columns: dict[str, Any]  # of `Rows`
    collectives: tuple[Any, Any]  # their indices, and the members of their actors that run them
    messages: tuple[Any, Any, Any]  # their indices, whether each is a send, and their channels
    communication: Any  # indices of both


class NodeColumns:
    """The nodes of a plan as they are shown; times of the plan are not read."""

    def __init__(self, plan: LoweredPlan, workload: Workload) -> None:
        self._plan, self._workload = plan, workload

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Return the different names of nodes."""
        return tuple(
            dict.fromkeys(chain.from_iterable(stack.trace.names for stack in self._workload.stacks()))
        )

    def shared(self, base: Any, at: Any) -> SharedColumns:
        """Return the columns of the nodes at rows of the plan's table; their templates are at `base`."""
        is_contiguous = len(at) > 0 and bool((at[1:] == at[:-1] + 1).all())
        these: Any = slice(int(at[0]), int(at[-1]) + 1) if is_contiguous else at  # a slice is not copied
        nodes = np.asarray(self._plan.nodes)[these]
        action, kind = nodes["action"], self._kinds[these]
        lane = self._lanes_of(nodes["lane"], these)
        columns = {
            "at": at,
            "node_id": self.ids[these],
            "name": self.name_numbers[these],
            "kind": kind,
            "lane": lane,
            "activity": ACTIVITY_OF[kind, lane],
            "stream": np.maximum(nodes["lane"].astype(np.int32) - LANES, NONE),
            "recorded_on": self.recorded[0][these],
            "treatment": np.ascontiguousarray(nodes["treatment"]),
            "bytes": np.ascontiguousarray(nodes["bytes"]),
        }
        of_groups, of_pairs = (
            action == Action.COLLECTIVE,
            (action == Action.SEND) | (action == Action.RECEIVE),
        )
        collectives, messages = np.flatnonzero(of_groups), np.flatnonzero(of_pairs)
        return SharedColumns(
            base,
            at,
            columns,
            (collectives, nodes["member"][collectives]),
            (messages, action[messages] == Action.SEND, nodes["detail"][messages]),
            np.flatnonzero(of_groups | of_pairs),
        )

    @cached_property
    def recorded(self) -> tuple[Any, tuple[str, ...]]:
        """Return the recorded stream or thread of each node, NONE without one; and the names."""
        index: dict[str, int] = {}
        names_of_nodes = np.full(self._workload.nodes_per_template.sum(), NONE, np.int32)
        first = 0
        for trace in self._recorded_traces():
            for word, attribute, values in (
                ("thread", "tid", trace.thread),
                ("stream", "stream", trace.stream),
            ):
                given = np.flatnonzero(trace.has(attribute))
                if not len(given):
                    continue
                numbers, which = np.unique(values[given], return_inverse=True)
                names = [index.setdefault(f"{word} {number}", len(index)) for number in numbers.tolist()]
                names_of_nodes[first + given] = np.array(names, np.int32)[which]
            first += len(trace)
        return names_of_nodes, tuple(index)

    def _recorded_traces(self) -> Iterator[Trace]:
        """Yield all templates, as stacks where streams and threads were not recorded."""
        for stack in self._workload.stacks():
            is_recorded = any(stack.trace.has(attribute).any() for attribute in ("tid", "stream"))
            yield from stack.traces if is_recorded else [stack.trace]

    def _lanes_of(self, lane: Any, these: Any) -> Any:
        """Return the lanes in which nodes are shown; nodes on streams are shown as without them."""
        if not self._plan.stream_names:
            return _SHOWN_LANE[lane]
        return np.where(lane < LANES, _SHOWN_LANE[np.minimum(lane, LANES - 1)], self._plain_lanes[these])

    @cached_property
    def _plain_lanes(self) -> Any:
        computes, is_cpu = (
            self._of_template("kind", np.int16) == NodeKind.COMP,
            self._of_template("is_cpu", np.bool_),
        )
        plain = np.where(computes, np.uint8(Lane.COMPUTE), np.uint8(Lane.COMMUNICATION))
        return np.where(is_cpu, np.uint8(Lane.CPU), plain)

    def _of_template(self, column: str, dtype: Any) -> Any:
        parts = [getattr(stack.trace, column) for stack in self._workload.stacks()]
        return (np.concatenate(parts) if len(parts) > 1 else parts[0]).astype(dtype, copy=False)

    @cached_property
    def name_numbers(self) -> Any:
        """Return the name of each node, as an index into `names`."""
        number_of = {name: number for number, name in enumerate(self.names)}.__getitem__
        traces = [stack.trace for stack in self._workload.stacks()]
        return np.concatenate(
            [
                np.fromiter(map(number_of, trace.names), np.int32, len(trace.names))[trace.name]
                for trace in traces
            ]
        )

    @cached_property
    def _kinds(self) -> Any:
        kind = self._of_template("kind", np.int16)
        collective = self._of_template("comm_type", np.int8)
        kinds = np.where(kind == NodeKind.COLL, len(NODE_KIND_NAMES) + collective, kind)
        opaque = np.flatnonzero(kind > NodeKind.COLL)
        first, last = KIND_NAMES.index(OPAQUE_KINDS[0]), KIND_NAMES.index(OPAQUE_KINDS[-1])
        kinds[opaque] = np.minimum(first + kind[opaque] - NodeKind.STORAGE, last)
        is_typed = np.concatenate([stack.trace.has("comm_type") for stack in self._workload.stacks()])
        kinds[(kind == NodeKind.COLL) & ~is_typed] = KIND_NAMES.index(UNNAMED_KIND)
        computes, is_gap = kind == NodeKind.COMP, self._of_template("is_gap", np.bool_)
        kinds[computes & self._of_template("is_copy", np.bool_)] = KIND_NAMES.index(COPY)
        kinds[computes & self._of_template("is_cpu", np.bool_)] = KIND_NAMES.index("host")
        kinds[computes & is_gap] = KIND_NAMES.index("gap")
        return kinds.astype(np.int8)

    @cached_property
    def ids(self) -> Any:
        """Return the ids of the nodes of all templates, as in traces."""
        return self._of_template("node_id", np.uint64)


def _activities() -> Any:
    """Return the activity of a row, by kind and lane."""
    of_kind = np.full(len(KIND_NAMES), HOST, np.int8)
    of_kind[np.isin(KIND_NAMES, COMMUNICATION_KINDS)] = TRANSFER
    of_kind[np.isin(KIND_NAMES, MEMORY_KINDS)] = MEMORY
    of_kind[KIND_NAMES.index("compute")] = COMPUTE
    of_kind[KIND_NAMES.index(COPY)] = intervals.COPY
    table = np.repeat(of_kind[:, None], len(Lane), axis=1)
    table[:, Lane.CPU] = HOST
    return table


ACTIVITY_OF = _activities()
