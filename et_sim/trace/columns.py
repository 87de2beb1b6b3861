"""What one rank wants to do, as columns: the `Trace` every other room reads.

Invariant: rows are in ascending node id and ids are unique, so "lower row" means "lower id";
dependencies are row numbers and point at rows of the same trace. A trace is immutable and never
knows its rank, so that any number of ranks can share one.

Not here: reading and writing files (`wire`, `files`), and any notion of time or machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, IntFlag

import numpy as np
import numpy.typing as npt

IntColumn = npt.NDArray[np.int64]
RowColumn = npt.NDArray[np.int32]


# The reference folds the tags of sends and receives into this range.
TAG_RANGE = 500_000_000


class NodeKind(IntEnum):
    """Node types, with the numbers they have on the wire."""

    INVALID = 0
    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    SEND = 5
    RECV = 6
    COLL = 7


class CollectiveKind(IntEnum):
    """Collective types, with the numbers they have on the wire (`comm_type`)."""

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


class Has(IntFlag):
    """Which optional attributes a node carried in its file (column `present`)."""

    IS_CPU_OP = 1
    NUM_OPS = 2
    TENSOR_SIZE = 4
    COMM_TYPE = 8
    COMM_SIZE = 16
    COMM_TAG = 32
    COMM_SRC = 64
    COMM_DST = 128
    COMM_PRIORITY = 256
    GROUP = 512
    INVOLVED_DIM = 1024
    INPUTS = 2048
    OUTPUTS = 4096
    DURATION_NS = 8192
    CONCURRENT = 16384


@dataclass(frozen=True, slots=True, eq=False)
class TensorLists:
    """The attributes `inputs` and `outputs`, kept as written: [tensor, bytes, tensor, bytes, …].

    List k is of row `row[k]` and holds `words[start[k] : start[k + 1]]`. Lists are in ascending row,
    of one row inputs before outputs; a trace without any costs nothing. `tensors` says what they mean.
    """

    row: RowColumn
    is_output: npt.NDArray[np.bool_]
    start: IntColumn
    words: RowColumn  # index into `texts`, which are in the order of their first use
    texts: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.row)

    def is_same(self, other: TensorLists) -> bool:
        """Whether both say the same about every row."""
        columns = ("row", "is_output", "start", "words")
        return self.texts == other.texts and all(
            np.array_equal(getattr(self, column), getattr(other, column)) for column in columns
        )


def no_tensor_lists() -> TensorLists:
    """What a trace has whose nodes name no tensors."""
    return TensorLists(
        np.zeros(0, np.int32), np.zeros(0, np.bool_), np.zeros(1, np.int64), np.zeros(0, np.int32), ()
    )


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """One program. `n` rows; `*_start` arrays are CSR offsets of length n + 1."""

    node_id: npt.NDArray[np.uint64]
    kind: npt.NDArray[np.uint8]  # NodeKind
    name: RowColumn  # index into `names`
    duration_us: IntColumn
    is_cpu: npt.NDArray[np.bool_]
    num_ops: IntColumn
    tensor_bytes: IntColumn
    comm_type: RowColumn  # CollectiveKind
    comm_bytes: IntColumn
    comm_tag: IntColumn
    comm_src: RowColumn
    comm_dst: RowColumn
    comm_priority: IntColumn
    group: RowColumn  # index into `group_names`; "" is index 0 and means all ranks
    involved_dims: npt.NDArray[np.uint64]  # bit d set: dimension d takes part (valid if present)
    involved_count: npt.NDArray[np.uint8]  # how many flags the node listed
    duration_ns: IntColumn  # exact, in place of `duration_us` (valid if present)
    is_concurrent: npt.NDArray[np.bool_]  # takes no turn: only its dependencies order it
    present: npt.NDArray[np.uint32]  # Has
    data_start: IntColumn
    data_deps: RowColumn
    ctrl_start: IntColumn
    ctrl_deps: RowColumn
    names: tuple[str, ...]
    group_names: tuple[str, ...] = ("",)
    version: str = ""
    # METADATA rows only: the text of `inputs.values` (process-group descriptions).
    metadata_text: dict[int, str] = field(default_factory=dict)
    # Attributes that were present but mean nothing to the simulator: name -> number of nodes.
    ignored_attributes: dict[str, int] = field(default_factory=dict)
    tensors: TensorLists = field(default_factory=no_tensor_lists)
    source: str = ""
    # Dependencies on nodes that the file lacks, left out because the caller asked for it.
    dropped_dependencies: int = 0

    def __len__(self) -> int:
        return len(self.node_id)

    def node_name(self, row: int) -> str:
        """The name of the node at `row`."""
        return self.names[int(self.name[row])]

    def describe(self, row: int) -> str:
        """`node 7 "layer1.grad"`: how messages to people refer to a node."""
        return f'node {int(self.node_id[row])} "{self.node_name(row)}"'

    def parents(self, row: int) -> RowColumn:
        """Rows that must complete before `row` (data and control, each once, ascending)."""
        data = self.data_deps[self.data_start[row] : self.data_start[row + 1]]
        ctrl = self.ctrl_deps[self.ctrl_start[row] : self.ctrl_start[row + 1]]
        merged: RowColumn = np.unique(np.concatenate((data, ctrl))).astype(np.int32)
        return merged
