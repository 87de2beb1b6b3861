"""An event of a Kineto timeline as far as we look at it, and what its category means.

Keys that are not named here are skipped while decoding. Not here: columns (`device`).
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from converters.pytorch.columns import ABSENT, EventSort
from converters.pytorch.reading.decoding import NO_TEXT

# Files disagree about what is quoted; `growing.whole_number` reads all of it.
Number: TypeAlias = int | float | str | None

_S = EventSort
SORTS: dict[str, EventSort] = {
    "cpu_op": _S.OPERATOR,
    "operator": _S.OPERATOR,
    "user_annotation": _S.ANNOTATION,
    "cuda_runtime": _S.LAUNCH,
    "cuda_driver": _S.LAUNCH,
    "runtime": _S.LAUNCH,
    "mtia_runtime": _S.LAUNCH,
    "xpu_runtime": _S.LAUNCH,
    "xpu_driver": _S.LAUNCH,
    "glow_runtime": _S.LAUNCH,
    "privateuse1_runtime": _S.LAUNCH,
    "privateuse1_driver": _S.LAUNCH,
    "kernel": _S.KERNEL,
    "concurrent_kernel": _S.KERNEL,
    "gpu_memcpy": _S.MEMCPY,
    "memcpy": _S.MEMCPY,
    "gpu_memset": _S.MEMSET,
    "memset": _S.MEMSET,
    "cuda_sync": _S.SYNC,
    "xpu_sync": _S.SYNC,
    "gpu_user_annotation": _S.DEVICE_ANNOTATION,
    "overhead": _S.OVERHEAD,
    "mtia_ccp_events": _S.ACCELERATOR,
    "mtia_workloadd": _S.ACCELERATOR,
    "hpu_op": _S.ACCELERATOR,
}


class Arguments(
    msgspec.Struct,
    gc=False,
    rename={
        "external_id": "External id",
        "external_id_of_old": "external id",
        "record_function": "Record function id",
        "sequence": "Sequence number",
        "dims": "Input Dims",
        "types": "Input type",
        "values": "Concrete Inputs",
        "size_bytes": "bytes",
        "sync_sort": "cuda_sync_kind",
        "waited_stream": "wait_on_stream",
        "waited_event": "wait_on_cuda_event_id",
        "waited_record": "wait_on_cuda_event_record_corr_id",
        "operation": "Collective name",
        "in_elements": "In msg nelems",
        "out_elements": "Out msg nelems",
        "group_size": "Group size",
        "group_name": "Process Group Name",
        "group_description": "Process Group Description",
        "group_ranks": "Process Group Ranks",
        "rank_start": "Global rank start",
        "rank_stride": "Global rank stride",
        "in_splits": "In split size",
        "out_splits": "Out split size",
        "source": "Src Rank",
        "destination": "Dst Rank",
        "number": "Seq",
    },
):
    """`args` of an event."""

    external_id: Number = ABSENT
    external_id_of_old: Number = ABSENT
    record_function: Number = ABSENT
    correlation: Number = ABSENT
    stream: Number = None
    device: Number = None
    sequence: Number = ABSENT
    dims: msgspec.Raw = NO_TEXT
    types: msgspec.Raw = NO_TEXT
    values: msgspec.Raw = NO_TEXT
    size_bytes: Number = None
    size: Number = None  # the same, of ROCm's calls
    sync_sort: str | None = None
    waited_stream: Number = None
    waited_event: Number = ABSENT
    waited_record: Number = ABSENT
    operation: str | None = None
    dtype: str = ""
    in_elements: Number = ABSENT
    out_elements: Number = ABSENT
    group_size: Number = ABSENT
    group_name: str | int = ""
    group_description: str = ""
    group_ranks: msgspec.Raw = NO_TEXT
    rank_start: Number = ABSENT
    rank_stride: Number = ABSENT
    in_splits: msgspec.Raw = NO_TEXT
    out_splits: msgspec.Raw = NO_TEXT
    source: Number = ABSENT
    destination: Number = ABSENT
    number: Number = ABSENT


class Event(msgspec.Struct, gc=False, rename={"phase": "ph", "category": "cat", "flow_id": "id"}):
    """An element of `traceEvents`."""

    phase: str = ""
    category: str = ""
    name: str = ""
    pid: int | float | str = -1
    tid: int | float | str = -1
    ts: int | float | str | None = None
    dur: int | float | str | None = None
    flow_id: Number = ABSENT
    args: Arguments | None = None


class EventTimes(msgspec.Struct, gc=False):
    """The times of an event as the file writes them."""

    ts: msgspec.Raw = NO_TEXT
    dur: msgspec.Raw = NO_TEXT


NO_ARGUMENTS = Arguments()
