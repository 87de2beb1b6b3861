"""Columns of a rank's two recordings: the execution trace (host) and the Kineto timeline (device).

One row per node of the execution trace and one per kept event of the timeline, both in the order of
their files. Rows are columns, not objects, because a file of a gigabyte holds millions of them.

Conventions of every column:

* -1 (`ABSENT`) in an integer column means that the file has no value. A column of numbers from the file
  is int32 where all its values fit and int64 otherwise; times are always int64.
* A column called `name`, or documented as "text", holds indices into the table beside it (`names`,
  `texts`). Equal strings have equal indices, so comparing indices compares strings.
* `texts` holds pieces of JSON as the file has them (`json.loads` reads them), or plain text where noted.
* Times of the device trace are nanoseconds relative to `base_ns`, exactly the decimals of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

Numbers = npt.NDArray[np.signedinteger[Any]]
Times = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Kinds = npt.NDArray[np.uint8]

ABSENT = -1
NONE = -1  # no row, in a column of rows


class HostNodeKind(IntEnum):
    """The kinds of nodes of an execution trace."""

    OPERATOR = 0
    ANNOTATION = 1  # record_function of a user or of PyTorch itself (scope 7): optimizer steps, gloo:*, …
    PROCESS = 2  # the root
    THREAD = 3  # child of the root, one for each thread
    COMMUNICATION = 4  # record_param_comms: the NCCL wrapper's description of a collective
    GROUPS = 5  # process_group:init: a JSON string that lists the process groups
    C10D = 6  # an operator of torch.distributed: c10d::*, _c10d_functional::*
    DEVICE = 7  # work of an accelerator that an older linker put into the file ("ET+")


class EventKind(IntEnum):
    """The kinds of events of a Kineto timeline, independent of the names of categories."""

    OPERATOR = 0  # cpu_op
    ANNOTATION = 1  # user_annotation: ProfilerStep#k, record_function on the host
    LAUNCH = 2  # calls of an accelerator's runtime or driver: launches, copies, synchronisation, queries
    KERNEL = 3
    MEMCPY = 4
    MEMSET = 5
    SYNC = 6  # cuda_sync: a wait for a stream, an event or the context
    DEVICE_ANNOTATION = 7  # gpu_user_annotation: an annotation's extent on the device
    OVERHEAD = 8  # the profiler's own work
    ACCELERATOR = 9  # work of other devices, such as mtia_ccp_events


ON_DEVICE = frozenset({EventKind.KERNEL, EventKind.MEMCPY, EventKind.MEMSET, EventKind.ACCELERATOR})


class ProcessGroup(Struct, frozen=True):
    """A process group as a file describes it; `ranks` is empty if the group has all ranks or no list."""

    name: str
    description: str
    ranks: tuple[int, ...]
    size: int  # ABSENT if missing
    backend: str


class Tensors(Struct, frozen=True, eq=False):
    """The tensors among the inputs (or outputs) of each row, lists of tensors flattened.

    Those of row r are at `start[r] : start[r + 1]`, in order. Values that are no tensor, and missing tensors
    (None), have no entry. `argument` is the index of the argument that the tensor is or belongs to.
    """

    start: npt.NDArray[np.int64]
    argument: npt.NDArray[np.uint16]
    storage_id: Numbers
    elements: Numbers
    element_bytes: npt.NDArray[np.uint8]
    device: Indices  # text (plain): "cuda:0", "cpu"


class HostTrace(Struct, frozen=True, eq=False):
    """A PyTorch execution trace: one row per node, in the order of the file (the order of finishing)."""

    path: str
    schema: str  # as written; known dialects are "1.0.1" to "1.1.1-chakra.0.0.4"
    process: int
    rank: int  # ABSENT if neither the content nor the name of the file has it
    start_ms: int  # `start_ts`, of a clock unrelated to Kineto's
    finish_ms: int
    names: tuple[str, ...]
    texts: tuple[bytes, ...]
    groups: tuple[ProcessGroup, ...]  # of all process_group:init nodes, first mention first
    dropped: Mapping[str, int]  # number of parts left out, by kind
    repaired: int  # blocks of the file that were corrected because they were invalid JSON or UTF-8

    node_id: Numbers  # unique
    parent: Numbers  # id of the calling node; the root is its own parent
    kind: Kinds  # HostNodeKind
    name: Indices
    record_function: Numbers  # rf_id: equals Kineto's "Record function id"
    thread: Numbers  # small numbers of the execution trace's own, 1 is the first thread
    sequence: Numbers  # seq_id of autograd, ABSENT (-1 in the file, too) if none
    scope: Kinds  # RecordScope of PyTorch: 0 function, 1 backward function, 7 user
    schema_text: Indices  # text (plain): the operator's signature, or ABSENT if empty
    input_shapes: Indices  # text: JSON list, one shape for each input
    input_types: Indices  # text: JSON list of strings, "Tensor(float)", "Int", "GenericList[Int]", …
    output_shapes: Indices
    output_types: Indices
    # All input values as JSON, only for rows of kinds COMMUNICATION, GROUPS and C10D and for operators whose
    # cost depends on values that are no tensors (convolutions, attention); elsewhere ABSENT.
    input_values: Indices
    # JSON object of the attributes beyond the common ones that are not empty: collective_name, dtype,
    # in_msg_nelems, pg_name, …, kernel_backend, kernel_file. tensor_range is left out. ABSENT if none.
    attributes: Indices
    inputs: Tensors
    outputs: Tensors

    def __len__(self) -> int:
        return len(self.node_id)


class EventLane(Struct, frozen=True):
    """A sequence of events: a thread of the host, or a stream of a device.

    For events of the host `device` and `stream` are ABSENT. Events of the device carry `process` and `thread`
    as the timeline draws them (usually the same two numbers).
    """

    process: int
    thread: int
    device: int
    stream: int


class WaitColumns(Struct, frozen=True, eq=False):
    """The synchronisation events (EventKind.SYNC): the waiting stream or thread, and its target."""

    row: Indices  # of the event
    kind: Indices  # text (plain): "Stream Wait Event", "Event Sync", "Stream Sync", "Context Sync"
    stream: Numbers  # the awaited one; the waiter of "Stream Wait Event" is the row's lane
    event: Numbers  # the CUDA event's id
    record_correlation: Numbers  # correlation of the call that recorded the event


class CopyTransfers(Struct, frozen=True, eq=False):
    """The bytes that copies and memsets move."""

    row: Indices
    size_bytes: npt.NDArray[np.int64]


class RecordedCollectives(Struct, frozen=True, eq=False):
    """Events with NCCL arguments: kernels, and the record_param_comms operators above them.

    Sizes are in elements of `dtype`. "wait" and barriers have rows if the file describes them.
    """

    row: Indices
    operation: Indices  # text (plain): "Collective name", such as "allreduce", "_allgather_base", "send"
    dtype: Indices  # text (plain): "BFloat16", "Float", …
    in_elements: Numbers
    out_elements: Numbers
    group_size: Numbers
    group_name: Indices  # text (plain)
    group_description: Indices  # text (plain)
    group_ranks: Indices  # text (plain): "[0, 1]"; PyTorch shortens long lists with "..."
    rank_start: Numbers  # "Global rank start" and "… stride" describe regular groups
    rank_stride: Numbers
    in_splits: Indices  # text (plain): "[]" or "[1, 2]"
    out_splits: Indices
    source: Numbers  # "Src Rank" and "Dst Rank" of send and receive, as in the file
    destination: Numbers
    number: Numbers  # "Seq", of newer files


class MemoryChanges(Struct, frozen=True, eq=False):
    """Allocations and releases in the memory of devices (`profile_memory=True`), in the order of the file."""

    ts_ns: Times
    lane: Indices  # the thread that allocated or released
    device: Numbers
    address: Numbers
    size_bytes: Numbers  # below 0: released
    allocated_bytes: Numbers  # of the device, after the change
    reserved_bytes: Numbers  # by the allocator, after the change

    def __len__(self) -> int:
        return len(self.ts_ns)


# the columns of `Collectives` that are texts
COLLECTIVE_TEXTS = (
    "operation",
    "dtype",
    "group_name",
    "group_description",
    "group_ranks",
    "in_splits",
    "out_splits",
)


class DeviceTrace(Struct, frozen=True, eq=False):
    """A Kineto timeline: one row per kept event, in the order of the file.

    Left out, and counted in `dropped` as "phase/category", are: metadata and instants (M, i),
    python_function, arrows (ac2g repeat a correlation, fwdbwd a sequence number that their two events carry),
    counters, and unknown categories. `dropped` also counts other irregularities, under a description.
    """

    path: str
    rank: int  # of distributedInfo, or of the file's name; ABSENT if missing
    world_size: int  # ABSENT if missing
    backend: str  # "nccl", "gloo", … or "" if missing
    base_ns: int  # add to a time to get nanoseconds of the epoch; 0 if the file's times are absolute
    names: tuple[str, ...]
    texts: tuple[bytes, ...]
    lanes: tuple[EventLane, ...]
    groups: tuple[ProcessGroup, ...]  # of distributedInfo.pg_config
    device_properties: tuple[Mapping[str, Any], ...]  # as the file has them
    metadata: Mapping[str, Any]  # further members of the file's object that are no lists or objects
    window_ns: tuple[int, int] | None  # the recorded span ("PyTorch Profiler"), if the file has it
    dropped: Mapping[str, int]
    repaired: int  # blocks of the file that were corrected because they were invalid JSON or UTF-8

    kind: Kinds  # EventKind
    name: Indices
    ts_ns: Times
    dur_ns: Times
    lane: Indices  # index into `lanes`
    correlation: Numbers  # joins a launch and its work; several kernels of a graph share one
    external_id: Numbers  # joins operators and launches; in old files that of a kernel is its correlation
    record_function: Numbers  # "Record function id": equals rf_id of the execution trace; absent before 2024
    sequence: Numbers  # "Sequence number" of autograd
    # For operators: text, the JSON object {"dims": …, "types": …} of their recorded inputs, with "values" for
    # the operators whose values a HostTrace keeps, too; else ABSENT.
    arguments: Indices
    # Only for files in which an older linker merged both recordings ("ET+"): node id of the execution trace
    # that the event belongs to (its own for operators, the launching one for device work); else None.
    node_id: Numbers | None
    waits: WaitColumns
    transfers: CopyTransfers
    collectives: RecordedCollectives
    memory: MemoryChanges

    def __len__(self) -> int:
        return len(self.ts_ns)
