"""The program of one rank as columns: the `Trace` that all other packages read.

Invariant: rows are in ascending node id and ids are unique, so "lower row" means "lower id"; dependencies are
row numbers of the same trace. A trace is immutable and independent of its rank, so that any number of ranks
can share it.
"""

from collections.abc import Iterator
from enum import IntEnum
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field, structs

from et_sim.basics.unique import unique

IntColumn = npt.NDArray[np.int64]
RowColumn = npt.NDArray[np.int32]
BoolColumn = npt.NDArray[np.bool_]


# attributes of nodes whose size is not recorded, and of the first record: the start of the rank
UNSIZED, ESTIMATED, START_NS = "comm_size_unknown", "comm_size_estimated", "start_ns"
# The reference folds the tags of sends and receives into this range.
TAG_RANGE = 500_000_000


class NodeKind(IntEnum):
    """Node types, with their numbers in files."""

    INVALID = 0
    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    SEND = 5
    RECV = 6
    COLL = 7
    STORAGE = 8
    BATCH = 9
    CHECKPOINT = 10


LAST_KIND_NUMBER = 255  # higher types are read too, although their behaviour is unknown


def kind_name(number: int) -> str:
    """Return the name of a node type, or `TYPE_11` for one without a name."""
    return NodeKind(number).name if number < len(NodeKind) else f"TYPE_{number}"


class CollectiveKind(IntEnum):
    """Collective types, with their numbers in files (`comm_type`)."""

    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    REDUCE_SCATTER_BLOCK = 8
    BARRIER = 9


def collective_name(number: int) -> str:
    """Return the name of a collective type for messages: `all_reduce`, or `collective type 42`."""
    known = number in CollectiveKind.__members__.values()
    return CollectiveKind(number).name.lower() if known else f"collective type {number}"


class Attribute(Struct, frozen=True):
    """The form in files of a column of `Trace`; the annotation of the column holds it."""

    name: str
    member: str  # of AttributeProto's value, as written; readers accept any integer for a number
    least: int | None = None  # the lowest number allowed, if not the lowest of the column's type
    column: str = ""
    dtype: Any = np.uint64
    texts: str = ""  # for a text: the field of `Trace` with all of them, "" first; the column is an index

    @property
    def is_number(self) -> bool:
        """Return whether the attribute is one integer or truth value."""
        return self.member.endswith("_val") and self.member != "string_val"

    @property
    def limits(self) -> tuple[int, int]:
        """Return the lowest and the highest number allowed."""
        is_flag = self.dtype is np.bool_
        low, high = (0, 1) if is_flag else (np.iinfo(self.dtype).min, np.iinfo(self.dtype).max)
        return int(low) if self.least is None else self.least, int(high)


class TensorLists(Struct, frozen=True, eq=False):
    """The attributes `inputs` and `outputs`, as written: [tensor, bytes, tensor, bytes, …].

    List k belongs to row `row[k]` and holds `words[start[k] : start[k + 1]]`. Lists are in ascending row,
    inputs of a row before its outputs; a trace without lists needs no memory for them. `tensors` interprets
    them.
    """

    row: RowColumn
    is_output: BoolColumn
    start: IntColumn
    words: RowColumn  # index into `texts`, which are in the order of their first use
    texts: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.row)

    def is_same(self, other: "TensorLists") -> bool:
        """Return whether both have the same lists for every row."""
        columns = ("row", "is_output", "start", "words")
        return self.texts == other.texts and all(
            np.array_equal(getattr(self, column), getattr(other, column)) for column in columns
        )


def no_tensor_lists() -> TensorLists:
    """Return the lists of a trace without tensors."""
    return TensorLists(
        np.zeros(0, np.int32), np.zeros(0, np.bool_), np.zeros(1, np.int64), np.zeros(0, np.int32), ()
    )


class Trace(Struct, frozen=True, eq=False):
    """A program. `n` rows; `*_start` arrays are CSR offsets of length n + 1."""

    node_id: npt.NDArray[np.uint64]
    kind: npt.NDArray[np.uint8]  # NodeKind, or a number above them
    name: RowColumn  # index into `names`
    duration_us: IntColumn
    is_cpu: Annotated[BoolColumn, Attribute("is_cpu_op", "bool_val")]
    num_ops: Annotated[IntColumn, Attribute("num_ops", "int64_val", least=0)]
    tensor_bytes: Annotated[IntColumn, Attribute("tensor_size", "uint64_val", least=0)]
    comm_type: Annotated[RowColumn, Attribute("comm_type", "int64_val")]  # CollectiveKind
    comm_bytes: Annotated[IntColumn, Attribute("comm_size", "int64_val", least=0)]
    comm_tag: Annotated[IntColumn, Attribute("comm_tag", "int32_val")]
    comm_src: Annotated[RowColumn, Attribute("comm_src", "int32_val")]
    comm_dst: Annotated[RowColumn, Attribute("comm_dst", "int32_val")]
    comm_priority: Annotated[IntColumn, Attribute("comm_priority", "int32_val")]
    # "" means all ranks.
    group: Annotated[RowColumn, Attribute("pg_name", "string_val", texts="group_names")]
    # a matrix product or convolution, in words
    layer_shape: Annotated[RowColumn, Attribute("layer_shape", "string_val", texts="layer_shapes")]
    # the datatype of the computation
    datatype: Annotated[RowColumn, Attribute("dtype", "string_val", texts="datatypes")]
    # the bytes that an all-to-all sends to each member of its group
    splits: Annotated[RowColumn, Attribute("comm_split_sizes", "string_val", texts="split_texts")]
    # bit d set: dimension d takes part
    involved_dims: Annotated[npt.NDArray[np.uint64], Attribute("involved_dim", "bool_list")]
    involved_count: npt.NDArray[np.uint8]  # number of flags of the node
    # exact, replaces `duration_us`
    duration_ns: Annotated[IntColumn, Attribute("duration_ns", "int64_val", least=0)]
    # ordered by its dependencies only; takes no turn
    is_concurrent: Annotated[BoolColumn, Attribute("concurrent", "bool_val")]
    # of unknown size: it takes its recorded time and matches no other node
    is_unsized: Annotated[BoolColumn, Attribute(UNSIZED, "bool_val")]
    # size estimated from its duration
    is_estimated: Annotated[BoolColumn, Attribute(ESTIMATED, "bool_val")]
    # an idle time between two recorded events
    is_gap: Annotated[BoolColumn, Attribute("gap", "bool_val")]
    # a call of a device's runtime that launches work or waits for it
    is_launch: Annotated[BoolColumn, Attribute("launch", "bool_val")]
    # work of a device that moves data and computes nothing
    is_copy: Annotated[BoolColumn, Attribute("copy", "bool_val")]
    # no cache holds its inputs, such as weights that were unused for long
    is_cold: Annotated[BoolColumn, Attribute("cold", "bool_val")]
    # launched kernels that a node stands for; 0: it is part of an earlier one
    launches: Annotated[RowColumn, Attribute("launches", "int32_val", least=0)]
    # tier of a memory request, counted from 0 in the order of the memory file
    memory_tier: Annotated[RowColumn, Attribute("memory_tier", "int32_val")]
    # number of the recorded stream of a device
    stream: Annotated[IntColumn, Attribute("stream", "int64_val")]
    # number of the recorded thread of the host
    thread: Annotated[IntColumn, Attribute("tid", "int64_val")]
    present: npt.NDArray[np.uint32]  # bits of the attributes of the node, see `has`
    data_start: IntColumn
    data_deps: RowColumn
    ctrl_start: IntColumn
    ctrl_deps: RowColumn
    names: tuple[str, ...]
    group_names: tuple[str, ...] = ("",)
    layer_shapes: tuple[str, ...] = ("",)
    datatypes: tuple[str, ...] = ("",)
    split_texts: tuple[str, ...] = ("",)
    version: str = ""
    # start after the first rank of the workload
    start_ns: int = 0
    # METADATA rows only: the text of `inputs.values` (process-group descriptions)
    metadata_text: dict[int, str] = field(default_factory=dict)
    # attributes that the simulator ignores: name -> number of nodes
    ignored_attributes: dict[str, int] = field(default_factory=dict)
    tensors: TensorLists = field(default_factory=no_tensor_lists)
    source: str = ""
    # dependencies on missing nodes, left out at the caller's request
    dropped_dependencies: int = 0

    def __len__(self) -> int:
        return len(self.node_id)

    @property
    def is_opaque(self) -> BoolColumn:
        """Return a mask of nodes without a model: storage, batches, checkpoints, unknown types."""
        is_opaque: BoolColumn = self.kind > NodeKind.COLL
        return is_opaque

    @property
    def kind_counts(self) -> dict[str, int]:
        """Return the number of nodes of each type, by its name."""
        counts = np.bincount(self.kind).tolist()
        return {kind_name(number): count for number, count in enumerate(counts) if count}

    def has(self, attribute: str, rows: Any = slice(None)) -> BoolColumn:
        """Return a mask of the nodes (of these rows) with an attribute, by its name in files."""
        is_present: BoolColumn = (self.present[rows] & np.uint32(BIT[attribute])) != 0
        return is_present

    def node_name(self, row: int) -> str:
        """Return the name of the node at `row`."""
        return self.names[int(self.name[row])]

    def describe(self, row: int) -> str:
        """Return the name of a node for messages, such as `node 7 "layer1.grad"`."""
        return f'node {int(self.node_id[row])} "{self.node_name(row)}"'

    def parents(self, row: int) -> RowColumn:
        """Return the rows that must complete before `row` (data and control, each once, ascending)."""
        data = self.data_deps[self.data_start[row] : self.data_start[row + 1]]
        ctrl = self.ctrl_deps[self.ctrl_start[row] : self.ctrl_start[row + 1]]
        merged: RowColumn = unique(np.concatenate((data, ctrl))).astype(np.int32)
        return merged


_DTYPES = {BoolColumn: np.bool_, RowColumn: np.int32, IntColumn: np.int64}


def _attributes() -> Iterator[Attribute]:
    for column, hint in Trace.__annotations__.items():
        for entry in getattr(hint, "__metadata__", ()):
            yield structs.replace(entry, column=column, dtype=_DTYPES.get(hint.__origin__, np.uint64))


# the registry of attributes with a column, in the order of writing
ATTRIBUTES = tuple(_attributes())
NUMBERS = tuple(attribute for attribute in ATTRIBUTES if attribute.is_number)
TEXT_ATTRIBUTES = tuple(attribute for attribute in ATTRIBUTES if attribute.texts)
# the bit of each in `present`; two have no column, but lists in `Trace.tensors`
BIT = {
    name: 1 << bit
    for bit, name in enumerate((*(attribute.name for attribute in ATTRIBUTES), "inputs", "outputs"))
}
