"""Build a trace in Python, one readable call per node.

    build = TraceBuilder()
    forward = build.compute("forward", micros=120)
    gradient = build.collective("all_reduce", 1 << 20, after=[forward])
    trace = build.build()

Nodes may name the tensors they read and write with their sizes (`inputs=`, `outputs=`), for tracking
memory. Every call returns the node's id, to be named in `after=` (data) or `ctrl_after=` (control) of
other nodes, in any order. Arguments are checked when given; a dependency on an id that was never
made is found by `build`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypedDict, Unpack

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from et_sim.basics.errors import TraceError, did_you_mean
from et_sim.trace.builder_nodes import (
    BY_COLUMN,
    ID,
    ROOT_COLUMN,
    SIZE,
    NodeCall,
    collective_kind,
    numbered,
    present_bits,
    value_columns,
)
from et_sim.trace.columns import (
    NUMBERS,
    TEXT_ATTRIBUTES,
    Attribute,
    CollectiveKind,
    IntColumn,
    NodeKind,
    RowColumn,
    Trace,
)
from et_sim.trace.group_attributes import process_group_text, split_text
from et_sim.trace.tensors import Words, as_lists

Tensors = Mapping[str, int]  # name -> bytes


class NodeOptions(TypedDict, total=False):
    """The options of every node."""

    after: Iterable[int]  # data dependencies
    ctrl_after: Iterable[int]
    inputs: Tensors | None  # tensors that it reads
    outputs: Tensors | None
    attributes: Mapping[str, int | str]  # further ones, by their names in files
    node_id: int | None  # default: one more than the highest


class TraceBuilder(Struct):
    """A collector of nodes; `build` turns them into a `Trace`. `version` is free text for the file."""

    version: str = ""
    source: str = "<python>"
    _nodes: dict[int, NodeCall] = field(default_factory=dict)
    _next_id: int = 0

    def compute(
        self,
        name: str = "",
        *,
        micros: int = 0,
        nanos: int | None = None,
        concurrent: bool = False,
        num_ops: int | None = None,
        tensor_bytes: int | None = None,
        cpu: bool = False,
        layer_shape: str | None = None,
        dtype: str | None = None,
        **options: Unpack[NodeOptions],
    ) -> int:
        """Add a computation: replayed for `micros`, or modelled from `num_ops` and `tensor_bytes`.

        `nanos` is the exact time to replay, if microseconds are too coarse. A `concurrent` node begins as
        soon as its dependencies are done; it takes no turn among its rank's computations. `layer_shape`
        describes the operation, such as "gemm M N K" (`et_sim.trace.shapes` writes them), and `dtype` its
        numbers, such as "bf16".
        """
        values = {"is_cpu": cpu, "num_ops": num_ops, "tensor_bytes": tensor_bytes}
        return self._add(
            NodeKind.COMP,
            name,
            values | self._timing(nanos, concurrent),
            micros=_micros(micros, nanos),
            layer_shape=layer_shape,
            dtype=dtype,
            **options,
        )

    def collective(
        self,
        kind: CollectiveKind | str,
        bytes: int | None = None,
        group: str = "",
        *,
        name: str = "",
        splits: Sequence[int] | None = None,
        root: int | None = None,
        involved_dims: Sequence[bool] | None = None,
        priority: int | None = None,
        dtype: str | None = None,
        micros: int = 0,
        nanos: int | None = None,
        concurrent: bool = False,
        **options: Unpack[NodeOptions],
    ) -> int:
        """Add a collective over `group` ("" is all ranks); `bytes` is the input of each rank.

        For a scatter, `bytes` is the output of each rank. `root` is the source of a broadcast or scatter, and
        the destination of a reduce or gather (default: the group's first member). For an all-to-all, `splits`
        are the bytes that the rank sends to each member of the group, in the group's order, the rank itself
        included; `bytes` then is their sum. `dtype` is the datatype; switches cannot sum every type.
        """
        number = collective_kind(kind, self.source)
        if splits is not None:
            bytes = self._sum_of_splits(number, splits, bytes)
        elif bytes is None:
            raise self._wrong("a collective has neither bytes nor splits", "give bytes")
        values = {"is_cpu": False, "comm_type": int(number), "comm_bytes": bytes, "comm_priority": priority}
        if root is not None:
            if number not in ROOT_COLUMN:
                raise self._wrong(f"{number.name.lower()} has no root", "leave root out")
            values[ROOT_COLUMN[number]] = root
        return self._add(
            NodeKind.COLL,
            name or number.name.lower(),
            values | self._timing(nanos, concurrent),
            micros=_micros(micros, nanos),
            **options,
            group=group or None,
            dims=involved_dims,
            dtype=dtype,
            splits=None if splits is None else split_text(splits),
        )

    def _sum_of_splits(self, kind: CollectiveKind, splits: Sequence[int], bytes: int | None) -> int:
        if kind is not CollectiveKind.ALL_TO_ALL:
            raise self._wrong(
                f"{kind.name.lower()} has splits", "only an all_to_all has them: leave them out"
            )
        total = sum(self._integer("splits", size, SIZE) for size in splits)
        if bytes is not None and bytes != total:
            raise self._wrong(f"bytes is {bytes}, and the splits add up to {total}", "leave bytes out")
        return total

    def send(
        self,
        to: int,
        bytes: int,
        tag: int = 0,
        *,
        name: str = "",
        concurrent: bool = False,
        **options: Unpack[NodeOptions],
    ) -> int:
        """Add a message to rank `to`; its partner is a `receive` of the same tag and size there.

        A `concurrent` one waits for no other message of its rank.
        """
        values: dict[str, Any] = {"is_cpu": False, "comm_bytes": bytes, "comm_tag": tag, "comm_dst": to}
        values |= self._timing(None, concurrent)
        return self._add(NodeKind.SEND, name or "send", values, **options)

    def receive(
        self,
        source: int,
        bytes: int,
        tag: int = 0,
        *,
        name: str = "",
        **options: Unpack[NodeOptions],
    ) -> int:
        """Add a message from rank `source`; its partner is a `send` of the same tag and size there."""
        values = {"is_cpu": False, "comm_bytes": bytes, "comm_tag": tag, "comm_src": source}
        return self._add(NodeKind.RECV, name or "receive", values, **options)

    def load(
        self,
        bytes: int,
        *,
        name: str = "",
        tier: int | None = None,
        gather: str | None = None,
        **options: Unpack[NodeOptions],
    ) -> int:
        """Read `bytes` from memory; `tier` is the number of a tier, if the memory has several.

        With `gather`, all members of that group ("" is all ranks) get the same `bytes`, which leave the
        memory once: switches on the way copy them (an all-gather of shards in memory).
        """
        values = {"is_cpu": False, "tensor_bytes": bytes, "memory_tier": tier}
        if gather is not None:
            values["comm_type"] = int(CollectiveKind.ALL_GATHER)
        return self._add(NodeKind.MEM_LOAD, name or "load", values, **options, group=gather)

    def store(
        self,
        bytes: int,
        *,
        name: str = "",
        tier: int | None = None,
        reduce: str | None = None,
        **options: Unpack[NodeOptions],
    ) -> int:
        """Write `bytes` to memory; `tier` is the number of a tier, if the memory has several.

        With `reduce`, all members of that group ("" is all ranks) write `bytes` of their own, which switches
        on the way reduce, so that they reach the memory once (a reduce-scatter into shards in memory).
        """
        values = {"is_cpu": False, "tensor_bytes": bytes, "memory_tier": tier}
        if reduce is not None:
            values["comm_type"] = int(CollectiveKind.REDUCE_SCATTER)
        return self._add(NodeKind.MEM_STORE, name or "store", values, **options, group=reduce)

    def metadata(self, text: str, *, name: str = "", node_id: int | None = None) -> int:
        """Add a node that only carries text, such as a description of the process groups."""
        return self._add(NodeKind.METADATA, name or "metadata", {}, node_id=node_id, text=text)

    def process_groups(self, groups: Mapping[str, Sequence[int]], *, node_id: int | None = None) -> int:
        """Add a metadata node that lists the members of groups, as PyTorch writes it; no ranks means all."""
        return self.metadata(process_group_text(groups), name="process_group:init", node_id=node_id)

    def invalid(self, name: str = "", **options: Unpack[NodeOptions]) -> int:
        """Add a node of type INVALID, which has dependencies and does nothing."""
        return self._add(NodeKind.INVALID, name, {}, **options)

    def _add(
        self,
        kind: NodeKind,
        name: str,
        values: dict[str, Any],
        *,
        micros: int = 0,
        after: Iterable[int] = (),
        ctrl_after: Iterable[int] = (),
        inputs: Tensors | None = None,
        outputs: Tensors | None = None,
        attributes: Mapping[str, int | str] = MappingProxyType({}),
        node_id: int | None = None,
        group: str | None = None,
        dims: Sequence[bool] | None = None,
        splits: str | None = None,
        text: str = "",
        layer_shape: str | None = None,
        dtype: str | None = None,
    ) -> int:
        chosen = self._next_id if node_id is None else self._integer("node_id", node_id, ID)
        if chosen in self._nodes:
            raise self._wrong(f"node id {chosen} is used twice", "leave node_id out, or choose a free one")
        self._refuse_unknown(attributes)
        texts = {"group": group, "layer_shape": layer_shape, "datatype": dtype, "splits": splits}
        texts |= self._columns(TEXT_ATTRIBUTES, attributes)
        given = {column: value for column, value in texts.items() if value is not None}
        for attribute, value in (("name", name), ("text", text), *given.items()):
            self._check_text("dtype" if attribute == "datatype" else attribute, value)
        if dims is not None and len(dims) > 64:
            raise self._wrong(f"involved_dims has {len(dims)} flags", "there are at most 64 dimensions")
        self._nodes[chosen] = NodeCall(
            chosen,
            kind,
            name,
            self._integer("micros", micros, SIZE),
            {
                column: self._integer(column, value, BY_COLUMN[column].limits)
                for column, value in (values | self._columns(NUMBERS, attributes)).items()
                if value is not None
            },
            self._ids("after", after),
            self._ids("ctrl_after", ctrl_after),
            given,
            None if dims is None else tuple(bool(flag) for flag in dims),
            text,
            (self._words("inputs", inputs), self._words("outputs", outputs)),
        )
        if chosen < ID[1]:  # a node with the highest id does not change the counter
            self._next_id = max(self._next_id, chosen + 1)
        return chosen

    def _columns(self, known: Iterable[Attribute], attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the attributes by the columns that hold them."""
        return {
            attribute.column: attributes[attribute.name]
            for attribute in known
            if attribute.name in attributes
        }

    def _refuse_unknown(self, attributes: Mapping[str, Any]) -> None:
        known = [attribute.name for attribute in (*NUMBERS, *TEXT_ATTRIBUTES)]
        for name in attributes:
            if name not in known:
                remedy = did_you_mean(name, tuple(known)) or f"known: {', '.join(known)}"
                raise self._wrong(f"there is no attribute {name!r}", remedy)

    def _timing(self, nanos: int | None, concurrent: bool) -> dict[str, Any]:
        return {"duration_ns": nanos, "is_concurrent": concurrent or None}

    def _ids(self, name: str, ids: Iterable[int]) -> tuple[int, ...]:
        if not isinstance(ids, Iterable) or isinstance(ids, str):
            raise self._wrong(f"{name} is {ids!r}", f"give a list of node ids: {name}=[…]")
        return tuple(self._integer(name, node_id, ID) for node_id in ids)

    def _words(self, label: str, tensors: Tensors | None) -> Words | None:
        """Return tensors in the form of the attribute."""
        if tensors is None:
            return None
        if not isinstance(tensors, Mapping):
            raise self._wrong(f"{label} is {tensors!r}", f'give bytes by tensor: {label}={{"weights": 4096}}')
        for name in tensors:
            self._check_text(label, name)
        sizes = (self._integer(f"{label}[{name!r}]", size, SIZE) for name, size in tensors.items())
        return tuple(word for name, size in zip(tensors, sizes, strict=True) for word in (name, str(size)))

    def _integer(self, name: str, value: Any, limits: tuple[int, int]) -> int:
        low, high = limits
        if not isinstance(value, int | np.integer | np.bool_):
            raise self._wrong(f"{name} is {value!r}", "give an integer")
        if not low <= int(value) <= high:
            raise self._wrong(f"{name} is {int(value)}", f"it must be between {low} and {high}")
        return int(value)

    def _check_text(self, name: str, value: Any) -> None:
        try:
            value.encode()
        except (AttributeError, UnicodeEncodeError):
            raise self._wrong(f"{name} is {value!r}", "give text that UTF-8 can hold") from None

    def _wrong(self, cause: str, remedy: str) -> TraceError:
        return TraceError(cause, place=f"{self.source}, node {len(self._nodes)}", remedy=remedy)

    def build(self) -> Trace:
        """Return the trace of all nodes so far, in ascending id."""
        nodes = [self._nodes[node_id] for node_id in sorted(self._nodes)]
        ids = np.array([node.node_id for node in nodes], np.uint64)
        names, name = numbered([node.name for node in nodes])
        data_start, data_deps = self._rows(nodes, ids, [node.data for node in nodes])
        ctrl_start, ctrl_deps = self._rows(nodes, ids, [node.ctrl for node in nodes])
        dims = [node.dims or () for node in nodes]
        return Trace(
            node_id=ids,
            kind=np.array([node.kind for node in nodes], np.uint8),
            name=name,
            duration_us=np.array([node.micros for node in nodes], np.int64),
            involved_dims=np.array(
                [sum(1 << bit for bit, flag in enumerate(flags) if flag) for flags in dims], np.uint64
            ),
            involved_count=np.array([len(flags) for flags in dims], np.uint8),
            present=np.array([present_bits(node) for node in nodes], np.uint32),
            data_start=data_start,
            data_deps=data_deps,
            ctrl_start=ctrl_start,
            ctrl_deps=ctrl_deps,
            names=names,
            version=self.version,
            metadata_text={row: node.text for row, node in enumerate(nodes) if node.text},
            tensors=as_lists([node.tensors for node in nodes]),
            source=self.source,
            **value_columns(nodes),
        )

    def _rows(
        self, nodes: list[NodeCall], ids: npt.NDArray[np.uint64], lists: list[tuple[int, ...]]
    ) -> tuple[IntColumn, RowColumn]:
        """Return lists of ids as a CSR pair of rows."""
        start = np.zeros(len(lists) + 1, np.int64)
        np.cumsum([len(wanted) for wanted in lists], out=start[1:])
        wanted = np.array([node_id for wanted in lists for node_id in wanted], np.uint64)
        rows = np.searchsorted(ids, wanted)
        known = rows < len(ids)
        known[known] = ids[rows[known]] == wanted[known]
        if not bool(known.all()):
            item = int(np.argmin(known))
            node = nodes[int(np.searchsorted(start, item, side="right")) - 1]
            raise TraceError(
                f'node {node.node_id} "{node.name}" comes after node {int(wanted[item])},'
                " which was never made",
                place=self.source,
                remedy="use the ids that the builder's methods return",
            )
        return start, rows.astype(np.int32)


def _micros(micros: int, nanos: int | None) -> int:
    """Return rounded microseconds for readers without `nanos`, unless they are given, too."""
    return (nanos + 500) // 1000 if nanos is not None and not micros else micros
