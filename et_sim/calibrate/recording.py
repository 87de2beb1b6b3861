"""Kernels and collectives of a recording: equal ones together, with their time.

A recording is the output of `et-convert pytorch`. A row is a shape, and its time the median. Kernels without
a shape are only counted: the tensors that an operator names are not those that its kernel moves (no bandwidth
was nearer than E 50 % to such rows). The time of a collective is that of the last member to arrive, as the
others wait in it: if all members are recorded, the least of their times.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import numpy as np
from msgspec import Struct, field

from et_sim.basics.errors import InputError, UsageError
from et_sim.basics.files import in_shell
from et_sim.basics.group_names import group_key
from et_sim.calibrate.collective_library import MeasuredCollective as Collective
from et_sim.calibrate.kernels import MeasuredKernel
from et_sim.calibrate.logs import COLLECTIVES
from et_sim.compute.registry import is_recorded, recorded_ns
from et_sim.compute.tiles import ATTENTION
from et_sim.machine.collective_library import Call
from et_sim.machine.datatypes import datatype_named
from et_sim.trace.columns import BoolColumn, CollectiveKind, NodeKind, Trace
from et_sim.trace.files import read_trace, traces_of
from et_sim.trace.group_attributes import read_process_groups
from et_sim.validation.row import size_of_kernel
from et_sim.validation.rows import Errors

SHAPED, SIZED, BARE = "with shapes", "with bytes only", "without figures"
UNMASKED = "attention, which may be causal or not"  # recordings do not show it
MIXED = "with operations that several kernels share"
LIBRARY = re.compile(r"^nccl|[^a-z]nccl\w*Kernel")
_NUMBERS = re.compile(r"_(?:Sum|Prod|Max|Min|MinMax|PreMulSum|SumPostDiv)_(\w+?)(?:_(?:RING|TREE|NVLS)|\(|$)")
_NAMES = {"f16": "fp16", "f32": "fp32", "f64": "fp64", "i8": "int8", "u8": "int8", "i32": "int32"}


class FittedPart(Struct, frozen=True):
    """Kernels of a kind, over all ranks."""

    kernels: int
    us: float


class RecordingRows(Struct, frozen=True, eq=False):
    """The rows of a recording, and the counts of everything else."""

    source: str
    files: tuple[Path, ...]
    parts: Mapping[str, FittedPart]
    kernels: tuple[MeasuredKernel, ...]
    counts: Mapping[MeasuredKernel, int]
    repeats: float  # E in percent, of equal kernels against their median; 0 if there are none
    collectives: tuple[Collective, ...]
    calls: Mapping[Call, int]
    waits: bool  # times of collectives include waits for members that were not recorded
    left: Mapping[str, int] = field(
        default_factory=dict
    )  # number of collectives that are not rows, by reason


def read_recording(prefix: str, ranks: int, node: int) -> RecordingRows:
    """Read all traces of a prefix: `ranks` ranks (0: as many as there are traces) on nodes of `node`."""
    paths = traces_of(prefix)
    if not paths:
        raise UsageError(
            f"there is no {prefix}.0.et",
            remedy=f"convert the recording: et-convert pytorch FOLDER -o {in_shell(prefix)}",
        )
    ranks = ranks or max(paths) + 1
    if max(paths) >= ranks:
        raise UsageError(
            f"{prefix} has a trace of rank {max(paths)}, and the machine {ranks} NPUs",
            remedy="name the machine with as many NPUs as the job had ranks",
        )
    kernels, collectives = _Kernels(), _Collectives(ranks, node)
    for path in paths.values():
        trace = read_trace(path)
        kernels.add(trace)
        collectives.add(trace)
    if not any(kernels.took.values()):
        raise InputError(
            "no kernel has a time",
            place=prefix,
            remedy="record a timeline of a device with torch.profiler, shapes with record_shapes=True",
        )
    counts = {_row(prefix, *key, times): len(times) for key, times in sorted(kernels.rows.items())}
    spread = [us / median(times) for times in kernels.rows.values() for us in times]
    rows, left = collectives.rows(prefix)
    return RecordingRows(
        prefix,
        tuple(paths.values()),
        {name: FittedPart(len(times), sum(times)) for name, times in kernels.took.items() if times},
        tuple(counts),
        counts,
        Errors.of(spread).e if spread else 0.0,
        tuple(row for row, _ in rows),
        {row.call: count for row, count in rows},
        collectives.waits,
        left,
    )


def _row(source: str, shape: str, datatype: str, times: Sequence[float]) -> MeasuredKernel:
    kind = shape.partition(" ")[0]
    size = size_of_kernel(kind, shape)
    place = f"{source}: {len(times)} x {shape}"
    return MeasuredKernel(shape, datatype, median(times), place, kind if size == "all" else f"{kind}, {size}")


class _Kernels:
    """The times of kernels in microseconds, over all ranks."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], list[float]] = defaultdict(list)  # by shape and datatype
        self.took: dict[str, list[float]] = {name: [] for name in (SHAPED, UNMASKED, MIXED, SIZED, BARE)}

    def add(self, trace: Trace) -> None:
        """Add the kernels of a rank."""
        times = recorded_ns(trace) / 1000
        is_kernel = (trace.kind == NodeKind.COMP) & trace.has("stream") & is_recorded(trace) & (times > 0)
        is_kernel &= ~(trace.is_cpu | trace.is_gap | trace.is_launch | trace.is_copy)
        is_attention = np.array([shape.partition(" ")[0] in ATTENTION for shape in trace.layer_shapes])
        has_shape, is_unmasked = trace.has("layer_shape"), is_attention[trace.layer_shape]
        computes, moves = trace.num_ops > 0, trace.tensor_bytes > 0
        for name, which in (
            (SHAPED, has_shape & ~is_unmasked),
            (UNMASKED, is_unmasked),
            (MIXED, ~has_shape & computes),
            (SIZED, ~has_shape & ~computes & moves),
            (BARE, ~has_shape & ~computes & ~moves),
        ):
            self.took[name] += times[is_kernel & which].tolist()
        for row in np.flatnonzero(is_kernel & has_shape & ~is_unmasked).tolist():
            datatype = datatype_named(trace.datatypes[int(trace.datatype[row])]) or ""
            self.rows[trace.layer_shapes[int(trace.layer_shape[row])], datatype].append(float(times[row]))


class _Collectives:
    """The times of collectives by call: the n-th of a kind in a group is one call on all of its members."""

    def __init__(self, ranks: int, node: int) -> None:
        self._ranks, self._node = ranks, node
        self._calls: dict[tuple[Call, str, int], list[float]] = defaultdict(list)
        self._left: dict[str, int] = defaultdict(int)
        self.waits = False

    def add(self, trace: Trace) -> None:
        """Add the collectives of a rank."""
        groups = read_process_groups(trace)
        times, seen = recorded_ns(trace) / 1000, dict[tuple[str, int], int]()
        is_device = ~trace.is_cpu & is_recorded(trace)
        for row in np.flatnonzero(trace.kind == NodeKind.COLL).tolist():
            group, kind = trace.group_names[int(trace.group[row])], int(trace.comm_type[row])
            number = seen[group, kind] = seen.get((group, kind), -1) + 1
            if why := self._why_not(trace, row, is_device):
                self._left[why] += 1
                continue
            members = groups.get(group_key(group), ()) if group else ()
            call = self._call(trace, row, members or tuple(range(self._ranks)))
            if call is None:
                self._left["on groups that do not fill nodes evenly"] += 1
            else:
                self._calls[call, group if not members else str(members), number].append(float(times[row]))

    def _why_not(self, trace: Trace, row: int, is_device: BoolColumn) -> str:
        if not is_device[row] or not LIBRARY.search(trace.node_name(row)):
            return "of another library than NCCL"
        if CollectiveKind(int(trace.comm_type[row])).name.lower() not in COLLECTIVES:
            return "of kinds that are not fitted"
        if trace.is_unsized[row] or trace.is_estimated[row] or not trace.comm_bytes[row]:
            return "whose bytes are not recorded"
        return "of different bytes for each pair" if trace.splits[row] else ""

    def _call(self, trace: Trace, row: int, members: Sequence[int]) -> Call | None:
        kind = CollectiveKind(int(trace.comm_type[row])).name.lower()
        size = int(trace.comm_bytes[row]) * (len(members) if kind == "all_gather" else 1)
        nodes = len({rank // self._node for rank in members})
        if len(members) < 2 or len(members) % nodes:
            return None
        named = _NUMBERS.search(trace.node_name(row))
        datatype = datatype_named(_NAMES.get(named[1], named[1])) if named else None
        return Call(kind, len(members), nodes, size, datatype or "")

    def rows(self, source: str) -> tuple[list[tuple[Collective, int]], dict[str, int]]:
        """Return each call with its common time and its count, and the number left out by reason."""
        whole: dict[Call, list[float]] = defaultdict(list)
        partly: dict[Call, list[float]] = defaultdict(list)
        for (call, _, _), times in self._calls.items():
            (whole if len(times) == call.ranks else partly)[call].append(min(times))
        self.waits = any(call not in whole for call in partly)
        rows = []
        for call in sorted(
            {*whole, *partly}, key=lambda call: (call.kind, call.ranks, call.size, call.datatype)
        ):
            times = whole.get(call) or partly[call]
            us = median(times) if call in whole else min(times)
            place = f"{source}: {len(times)} x {call.kind} of {call.size:,} bytes"
            rows.append((Collective(call, us, place), len(times)))
        return rows, dict(self._left)
