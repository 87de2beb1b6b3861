"""Costs of kernels: operations of operators with a formula, and bytes of their tensors.

The cost of an operator is divided among the kernels that it launched in proportion to their times, so that
sums over kernels are sums over operators. If operators with a formula are nested, the innermost counts.
Copies and fills have their own sizes. A kernel has no cost without an operator, or if the operator's tensors
are missing or insufficient, or if no device could reach that cost in its time.

Every input of an operator is read once and every output written once, with exceptions by name: filling only
writes, and gathering reads no more of its source than the output. A timeline lists no outputs: an output in
place is as large as the first input, the output of a reduction counts as zero, and other outputs are as large
as the largest input, or follow from the shapes (`formulas`). `rules.toml` lists the operators whose bytes
follow from their tensors; others, such as compiled functions, have no bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any

import numpy as np
from msgspec import Struct

from converters.pytorch.calls import DeviceWork, Recording, rules
from converters.pytorch.columns import ABSENT, NONE, DeviceTrace, EventKind, HostTrace, Tensors
from converters.pytorch.communication import shape_bytes
from converters.pytorch.formulas import Given, is_known, operations, output_elements, shape_of
from converters.pytorch.graph import Column, EventTally
from et_sim.basics.unique import groups_of, unique
from et_sim.compute import datatype_named

_MOST_BYTES = 1 << 62  # larger than any real shape


class TensorUse(Enum):
    """The ways in which operators use their tensors."""

    UNKNOWN = auto()
    PLAIN = auto()
    FILLS = auto()  # the first tensor is written, not read
    REDUCES = auto()
    GATHERS = auto()  # from the first tensor
    SCATTERS = auto()  # into the first tensor


def tensor_use_of(name: str) -> TensorUse:
    """Return the use of tensors by operators of this name."""
    names = rules().traffic
    short = name.removeprefix("aten::").removesuffix("_")
    if short in names.uses:
        return TensorUse[names.uses[short]]
    if is_known(name):
        return TensorUse.PLAIN
    is_moved = names.by_tensors.search(name) and not names.others.search(name)
    return TensorUse.PLAIN if is_moved else TensorUse.UNKNOWN


def bytes_by_row(host: HostTrace) -> Column:
    """Return the bytes of each row of an execution trace; NONE if the tensors do not determine them."""
    uses = [tensor_use_of(name) for name in host.names]
    kind = np.array([use_of_name.value for use_of_name in uses], np.int8)[host.name]
    inputs, outputs, first = _row_bytes(host.inputs), _row_bytes(host.outputs), _row_bytes(host.inputs, 0)
    moved = inputs + outputs
    fills, gathers, scatters = (
        kind == use_meant.value for use_meant in (TensorUse.FILLS, TensorUse.GATHERS, TensorUse.SCATTERS)
    )
    moved = np.where(fills, np.maximum(outputs, first), moved)
    moved = np.where(gathers, inputs - first + 2 * outputs, moved)
    moved = np.where(scatters, 2 * (inputs - first), moved)
    known: Column = np.where((kind == TensorUse.UNKNOWN.value) | (moved <= 0), NONE, moved)
    return known


def _row_bytes(tensors: Tensors, argument: int | None = None) -> Column:
    """Return the bytes of each row's tensors, or of those of one argument."""
    sizes = tensors.elements.astype(np.int64) * tensors.element_bytes.astype(np.int64)
    if argument is not None:
        sizes[tensors.argument != argument] = 0
    total = np.concatenate(([0], np.cumsum(sizes)))
    rows: Column = total[tensors.start[1:]] - total[tensors.start[:-1]]
    return rows


def bytes_of_call(name: str, given: Any) -> int:
    """Return the bytes of a call by its arguments in a timeline; NONE if they do not determine them."""
    kind = tensor_use_of(name)
    if not given or kind is TensorUse.UNKNOWN:
        return NONE
    sizes = shape_bytes(given["dims"], given["types"])
    total, first = sum(sizes), sizes[0] if sizes else 0
    if kind is TensorUse.FILLS:
        total = first
    elif kind is TensorUse.GATHERS:
        total = _gathered(name, given, sizes)
    elif kind is TensorUse.SCATTERS:
        total = 2 * (total - first)
    elif kind is TensorUse.PLAIN:
        total += _written(name, given, sizes) if total else 0
    return total if 0 < total < _MOST_BYTES else NONE


def _written(name: str, given: Any, sizes: Sequence[int]) -> int:
    """Return the bytes of the output."""
    elements = output_elements(name, Given(given["dims"], given.get("values") or []))
    if elements is not None:
        return elements * next((rules().bytes_of(kind) for kind in given["types"] if kind), 0)
    if name.rstrip("_") == "aten::copy":
        return 0  # the first input is written in place
    return sizes[0] if name.endswith("_") else max(sizes, default=0)


def _gathered(name: str, given: Any, sizes: Sequence[int]) -> int:
    """Return the bytes of an embedding: a row of the table per index, read and written; NONE for
    other names.
    """
    shapes = given["dims"]
    if name != "aten::embedding" or len(sizes) < 2 or len(shapes[0]) != 2:
        return NONE
    of_index = rules().bytes_of(given["types"][1])
    lines = sizes[1] // of_index if of_index else 0
    return 2 * lines * int(shapes[0][1]) * rules().bytes_of(given["types"][0]) + sizes[1]


_MOST = 1 << 62  # larger than any real shape
# Rates above those of any device: a kernel above them does not do the work of its operator's shapes.
_OPERATIONS_PER_NS, _BYTES_PER_NS = 20_000_000, 40_000


class WorkCosts(Struct, frozen=True, eq=False):
    """Costs by work; -1 if unknown."""

    operations: Column
    tensor_bytes: Column
    operator: Column  # the call of the operator that launched it, or NONE
    shape: Column  # index into `texts`: the shape, if one kernel does all the work
    datatype: Column  # index into `texts`
    texts: tuple[str, ...]


class _Operators:
    """Calls with their shapes, from the execution trace if it has them."""

    def __init__(self, given: Recording) -> None:
        self.given = given
        self.texts: dict[str, int] = {}  # shapes and datatypes

    def operations(self, calls: Column) -> Column:
        """Return the operations of each of some calls; NONE if unknown."""

        def count(name: str, given: Given) -> int:
            count = operations(name, given)
            return NONE if count is None or count > _MOST else count

        return self._figures(calls, count)

    def moved(self, calls: Column) -> Column:
        """Return the bytes of the tensors of each of some calls; NONE if unknown."""
        device, host = self.given.device, self.given.host
        event, row = self.given.calls.row[calls], self.given.host_of_call[calls]
        size = np.full(len(calls), NONE, np.int64)
        if host is not None:
            size[row != NONE] = bytes_by_row(host)[row[row != NONE]]
        bare = np.flatnonzero(row == NONE)
        columns = device.name[event[bare]], device.arguments[event[bare]]
        size[bare] = _once_each(
            columns, lambda name, at: bytes_of_call(device.names[name], _json(device.texts, at))
        )
        return size

    def shapes(self, calls: Column) -> Column:
        """Return the index of the shape's text of each of some calls; NONE if there is none."""
        return self._figures(calls, lambda name, given: self._number(shape_of(name, given)))

    def datatypes(self, calls: Column) -> Column:
        """Return the index of the datatype's text of each of some calls: that of the first numeric tensor."""

        def first(_: str, given: Given) -> int:
            known = (
                datatype_named(str(kind).removeprefix("Tensor(").removesuffix(")")) for kind in given.values
            )
            return self._number(next((text for text in known if text), ""))

        return self._figures(calls, first, "types")

    def _number(self, text: str) -> int:
        return self.texts.setdefault(text, len(self.texts)) if text else NONE

    def _figures(self, calls: Column, figure: Callable[[str, Given], int], second: str = "values") -> Column:
        """Return the figure of each of some calls, from its name, its shapes and one more list of its
        arguments.
        """
        device, host = self.given.device, self.given.host

        def by_timeline(name: int, arguments: int) -> int:
            lists = _json(device.texts, arguments) or {}
            return figure(device.names[name], Given(*(lists.get(key) or [] for key in ("dims", second))))

        event, row = self.given.calls.row[calls], self.given.host_of_call[calls]
        name, figures = device.name[event], np.full(len(calls), NONE, np.int64)
        bare = np.flatnonzero(row == NONE)
        figures[bare] = _once_each((name[bare], device.arguments[event[bare]]), by_timeline)
        if host is not None:
            recorded = host

            def by_execution_trace(name: int, *lists: int) -> int:
                return figure(device.names[name], Given(*(_json(recorded.texts, at) or [] for at in lists)))

            recorded_rows = np.flatnonzero(row != NONE)
            column = host.input_values if second == "values" else host.input_types
            texts = (
                texts_column[row[recorded_rows]]
                for texts_column in (host.input_shapes, column, host.output_shapes)
            )
            figures[recorded_rows] = _once_each((name[recorded_rows], *texts), by_execution_trace)
        return figures


def find_costs(given: Recording, tally: EventTally) -> WorkCosts:
    """Return the costs of all work."""
    device, calls, work = given.device, given.calls, given.work
    operators = _Operators(given)
    operator = calls.around(work.call, calls.is_operator)
    own_bytes = _own_bytes(device)[work.row]
    formula = _formulas(given)
    flops = _operations(operators, work, formula)
    size = _bytes(operators, operator, own_bytes, work)
    duration = work.end_ns - work.start_ns
    is_wrong = (flops > _OPERATIONS_PER_NS * duration) | (size > _BYTES_PER_NS * duration)
    is_wrong &= own_bytes < 0
    remark = "kernels whose operators do more than a device can in their time: without figures"
    tally.count(remark, int(is_wrong.sum()))
    size[is_wrong] = flops[is_wrong] = NONE
    shape = _of_lone_kernels(operators, formula)
    shape[is_wrong] = NONE
    datatype = np.full(len(work), NONE, np.int64)
    computing = np.flatnonzero((operator != NONE) & (flops >= 0))
    groups, which = np.unique(operator[computing], return_inverse=True)
    datatype[computing] = operators.datatypes(groups)[which.reshape(-1)] if len(computing) else NONE
    return WorkCosts(
        flops, np.where(own_bytes >= 0, own_bytes, size), operator, shape, datatype, tuple(operators.texts)
    )


def _of_lone_kernels(operators: _Operators, formula: Column) -> Column:
    """Return the shapes of kernels that do all the work of their operator."""
    shapes = np.full(len(formula), NONE, np.int64)
    groups, first, kernels = np.unique(formula, return_index=True, return_counts=True)
    lone = (groups != NONE) & (kernels == 1)
    if lone.any():
        shapes[first[lone]] = operators.shapes(groups[lone])
    return shapes


def _formulas(given: Recording) -> Column:
    """Return the innermost operator with a formula around each kernel, or NONE."""
    device, calls, work = given.device, given.calls, given.work
    with_formula = np.array([is_known(name) for name in device.names], np.bool_)
    wanted = calls.is_operator & with_formula[device.name[calls.row]]
    formula = calls.around(work.call, wanted)
    used = unique(formula[formula != NONE])
    outer = calls.around(calls.parent[used], wanted)
    while (outer != NONE).any():
        formula[np.isin(formula, outer)] = NONE  # an operator within it counts
        outer = unique(outer[outer != NONE])
        outer = calls.around(calls.parent[outer], wanted)
    formula[np.isin(device.kind[work.row], (EventKind.MEMCPY, EventKind.MEMSET))] = NONE
    return formula


def _operations(operators: _Operators, work: DeviceWork, formula: Column) -> Column:
    """Return the operations of each kernel's formula, divided among its kernels."""
    with_formula = np.flatnonzero(formula != NONE)
    shares = np.full(len(work), NONE, np.int64)
    groups, which = np.unique(formula[with_formula], return_inverse=True)
    totals = operators.operations(groups)
    shares[with_formula] = _shared(work, with_formula, which, totals)
    return shares


def _bytes(operators: _Operators, operator: Column, own_bytes: Column, work: DeviceWork) -> Column:
    """Return the bytes of each operator's tensors, divided among its work without a size of its own.

    An operator outside PyTorch describes one kernel only: of several, each share is unknown.
    """
    device, calls = operators.given.device, operators.given.calls
    shares = np.full(len(work), NONE, np.int64)
    unsized = np.flatnonzero((operator != NONE) & (own_bytes < 0))
    if not len(unsized):
        return shares
    groups, which, kernels = np.unique(operator[unsized], return_inverse=True, return_counts=True)
    totals = operators.moved(groups)
    is_own = np.array([name.startswith("aten::") or is_known(name) for name in device.names], np.bool_)
    totals[(kernels > 1) & ~is_own[device.name[calls.row[groups]]]] = NONE
    shares[unsized] = _shared(work, unsized, which, totals)
    return shares


def _own_bytes(device: DeviceTrace) -> Column:
    """Return the recorded bytes of copies and fills, by event."""
    size = np.full(len(device), NONE, np.int64)
    size[device.transfers.row] = device.transfers.size_bytes
    return size


def _once_each(columns: tuple[Any, ...], figure: Callable[..., int]) -> Column:
    """Return the figure of each row of some columns, computed once for equal rows."""
    equal = groups_of(*columns)
    distinct = zip(*(column[equal.first].tolist() for column in columns), strict=True)
    figures = np.array([figure(*map(int, row)) for row in distinct], np.int64)
    of_rows: Column = figures[equal.of_row]
    return of_rows


def _shared(work: DeviceWork, rows: Column, group: Column, totals: Column) -> Column:
    """Return the total of each group, divided among its work in proportion to times; NONE if unknown.

    `rows` are the work, and `group` holds the group of each. Groups without time are divided equally.
    """
    took = np.maximum(work.end_ns[rows] - work.start_ns[rows], 0) + 1
    order = np.lexsort((rows, group))
    until = np.cumsum(took[order])
    first = np.searchsorted(group[order], np.arange(len(totals)))
    before = np.concatenate(([0], until))[first]
    whole = np.bincount(group, weights=took, minlength=len(totals))
    place = group[order]
    upto = np.rint(totals[place] * ((until - before[place]) / whole[place])).astype(np.int64)
    share = np.diff(upto, prepend=0)
    share[first] = upto[first]
    share[totals[place] == NONE] = NONE
    shares = np.empty(len(rows), np.int64)
    shares[order] = share
    return shares


def _json(texts: tuple[bytes, ...], at: int) -> Any:
    return json.loads(texts[at]) if at != ABSENT else None
