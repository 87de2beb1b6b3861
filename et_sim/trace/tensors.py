"""Tensors that nodes read and write: the lists of a trace as names and sizes.

The lists are kept as written until they are used, so that a trace with invalid lists still simulates without
memory tracking.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct, structs

from et_sim.basics.errors import TraceError
from et_sim.basics.unique import unique
from et_sim.basics.units import MOST_BYTES, format_bytes
from et_sim.trace.columns import IntColumn, RowColumn, TensorLists, Trace, no_tensor_lists
from et_sim.trace.workload import Workload

Words = tuple[str, ...]  # tensor, bytes, tensor, bytes, …
# some writers compute sizes in floating point and write 4096.0
_SIZE = re.compile(r"([0-9]{1,30})(?:\.0*)?", re.ASCII)


class TensorUses(Struct, frozen=True, eq=False):
    """Every mention of a tensor by a node, in ascending row and list order; tensors of 0 bytes are
    left out.
    """

    row: RowColumn
    is_write: npt.NDArray[np.bool_]
    tensor: RowColumn  # index into `names`
    bytes: IntColumn
    names: tuple[str, ...]


def as_lists(of_rows: Sequence[tuple[Words | None, Words | None]]) -> TensorLists:
    """Return the columns for lists given row by row: inputs and outputs, None for a missing list."""
    lists = [(row, side, pair[side]) for row, pair in enumerate(of_rows) for side in (0, 1)]
    given = [(row, side, words) for row, side, words in lists if words is not None]
    if not given:
        return no_tensor_lists()
    number: dict[str, int] = {}
    words = [number.setdefault(word, len(number)) for _, _, listed in given for word in listed]
    start = np.zeros(len(given) + 1, np.int64)
    np.cumsum([len(listed) for _, _, listed in given], out=start[1:])
    return TensorLists(
        row=np.array([row for row, _, _ in given], np.int32),
        is_output=np.array([side == 1 for _, side, _ in given], np.bool_),
        start=start,
        words=np.array(words, np.int32),
        texts=tuple(number),
    )


def with_sizes(lists: TensorLists, sizes: Mapping[str, int]) -> TensorLists:
    """Return the lists with other sizes for some tensors; all are pairs of tensor and bytes."""
    if not sizes:
        return lists
    texts = list(lists.texts)
    number = {text: at for at, text in enumerate(texts)}
    size_of = np.full(len(texts), -1, np.int32)
    for name, size in sizes.items():
        if name in number:
            size_of[number[name]] = number.setdefault(str(size), len(number))
    new = size_of[lists.words[::2]]
    words = lists.words.copy()
    words[1::2] = np.where(new >= 0, new, words[1::2])
    used, first, of_word = np.unique(words, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    texts = list(number)
    return structs.replace(
        lists, words=place[of_word.reshape(-1)], texts=tuple(texts[at] for at in used[order].tolist())
    )


def tensor_uses(trace: Trace, place: str) -> TensorUses:
    """Return the lists of a trace as tensors and sizes; refuse invalid lists."""
    lists = trace.tensors
    counts = np.diff(lists.start)
    _refuse_list(counts % 2 == 1, trace, place, "is not pairs of tensor and bytes: it has an odd length")
    is_name = np.arange(len(lists.words)) % 2 == 0  # all earlier lists have even lengths
    names, sizes = lists.words[is_name], lists.words[~is_name]
    of_list = np.repeat(np.arange(len(lists)), counts // 2)
    size_of = _sizes_of(lists, sizes)
    size = size_of[sizes]
    for wrong, fault in (
        (size < 0, "gives a size that is not a whole number of bytes"),
        (size > MOST_BYTES, f"gives a size of more than {format_bytes(MOST_BYTES)}"),
    ):
        if wrong.any():
            item = int(np.argmax(wrong))
            fault_of_tensor = f"{fault} ({lists.texts[names[item]]!r}: {lists.texts[sizes[item]]!r})"
            _refuse_list(np.arange(len(lists)) == of_list[item], trace, place, fault_of_tensor)
    _refuse_too_much(names, size, len(lists.texts), place)
    sized = size > 0
    return TensorUses(
        row=lists.row[of_list[sized]],
        is_write=lists.is_output[of_list[sized]],
        tensor=names[sized],
        bytes=size[sized],
        names=lists.texts,
    )


def unannotated(trace: Trace) -> Any:
    """Return a mask of the nodes with neither of the two lists."""
    return ~(trace.has("inputs") | trace.has("outputs"))


def names_tensors(workload: Workload) -> bool:
    """Return whether any node lists tensors that it reads or writes."""
    return any(
        len(trace.tensors)
        for stack in workload.stacks()
        if not unannotated(stack.trace).all()
        for trace in stack.traces
    )


def remark_on_unannotated(workload: Workload) -> str:
    """Return a warning for memory tracking; empty if every node lists the tensors that it reads and
    writes.
    """
    nodes, without = 0, 0
    ranks_of_template = np.bincount(workload.template_of_rank, minlength=len(workload.templates))
    for stack in workload.stacks():
        ranks = stack.spread(stack.share(ranks_of_template))
        is_work = ~stack.trace.is_launch  # launches of the host hold no memory of a device
        nodes += int(ranks[is_work].sum())
        without += int(ranks[is_work & unannotated(stack.trace)].sum())
    if not without:
        return ""
    if without == nodes:
        return "no node names tensors in 'inputs' and 'outputs', so there is no memory to track"
    return (
        f"{without:,} of {nodes:,} nodes name no tensors in 'inputs' and 'outputs'; "
        "memory is that of the tensors the others name"
    )


def _sizes_of(lists: TensorLists, sizes: RowColumn) -> IntColumn:
    """Return the bytes of texts that represent sizes; -1 for invalid sizes."""
    size_of = np.zeros(len(lists.texts), np.int64)
    for text in unique(sizes).tolist():
        match = _SIZE.fullmatch(lists.texts[text])
        size_of[text] = min(int(match[1]), MOST_BYTES + 1) if match else -1
    return size_of


def _refuse_list(wrong: Any, trace: Trace, place: str, fault: str) -> None:
    if wrong.any():
        at = int(np.argmax(wrong))
        name = "outputs" if trace.tensors.is_output[at] else "inputs"
        raise TraceError(
            f"the attribute {name!r} of {trace.describe(int(trace.tensors.row[at]))} {fault}",
            place=place,
            remedy='write ["tensor", "bytes", …] when converting, or simulate without track-local-mem',
        )


def _refuse_too_much(names: RowColumn, size: IntColumn, texts: int, place: str) -> None:
    """Refuse tensors of a rank whose sum exceeds the largest number."""
    largest = np.zeros(texts, np.int64)
    np.maximum.at(largest, names, size)
    if largest.astype(np.float64).sum() > MOST_BYTES:
        raise TraceError(
            f"all tensors together have more than {format_bytes(MOST_BYTES)}",
            place=place,
            remedy="correct the sizes in 'inputs' and 'outputs', or simulate without track-local-mem",
        )
