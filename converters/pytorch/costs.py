"""What the kernels cost: operations where their operator's formula is known, and bytes of its tensors.

An operator's cost goes to the longest of the kernels it launched (of a formula, the innermost operator that
has one); the others get none, so that sums over kernels are sums over operators. Copies and fills have
their own sizes. A kernel without an operator, or whose operator's tensors were not recorded, has no cost.

Not here: the formulas (`formulas`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from converters.pytorch.calls import Calls, Work
from converters.pytorch.columns import ABSENT, DeviceTrace, HostTrace, Tensors
from converters.pytorch.communication import shape_bytes
from converters.pytorch.formulas import Given, is_known, operations
from converters.pytorch.graph import Column, Rows
from converters.pytorch.nesting import NONE

_Key = tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Costs:
    """By work; -1 where nothing is known."""

    operations: Column
    tensor_bytes: Column
    operator: Column  # the call of the operator that launched it, or NONE


@dataclass(frozen=True, slots=True, eq=False)
class _Operators:
    """Calls with their shapes, from the execution trace where it has them."""

    device: DeviceTrace
    calls: Calls
    host: HostTrace | None
    host_of_call: Rows

    def key(self, call: int) -> _Key:
        """What decides the cost of a call; equal keys cost the same."""
        event, row = int(self.calls.row[call]), int(self.host_of_call[call])
        if self.host is None or row == NONE:
            return int(self.device.name[event]), int(self.device.arguments[event])
        host = self.host
        shapes = int(host.input_shapes[row]), int(host.input_values[row]), int(host.output_shapes[row])
        return int(self.device.name[event]), *shapes

    def operations(self, key: _Key) -> int | None:
        """Operations of the calls of a key."""
        name = self.device.names[key[0]]
        if len(key) == 2:
            given = _json(self.device.texts, key[1]) or {}
            return operations(name, Given(given.get("dims") or [], given.get("values") or []))
        assert self.host is not None
        shapes, values, outputs = (_json(self.host.texts, text) or [] for text in key[1:])
        return operations(name, Given(shapes, values, outputs))


def find_costs(
    device: DeviceTrace, calls: Calls, work: Work, host: HostTrace | None, host_of_call: Rows
) -> Costs:
    """The costs of all work."""
    operators = _Operators(device, calls, host, host_of_call)
    operator = _around(calls, work.call, calls.is_operator)
    flops = np.full(len(work), NONE, np.int64)
    with_formula = np.array([is_known(name) for name in device.names], np.bool_)
    formula = _around(calls, work.call, calls.is_operator & with_formula[device.name[calls.row]])
    main = _longest(work, formula)
    known: dict[_Key, int | None] = {}
    for at in main.tolist():
        key = operators.key(int(formula[at]))
        if key not in known:
            known[key] = operators.operations(key)
        found = known[key]
        flops[at] = NONE if found is None else found
    return Costs(flops, _bytes(device, calls, work, host, host_of_call, operator), operator)


def _bytes(
    device: DeviceTrace,
    calls: Calls,
    work: Work,
    host: HostTrace | None,
    host_of_call: Rows,
    operator: Column,
) -> Column:
    """Bytes of the tensors that each operator names, on the longest of its kernels; others move none."""
    found = np.full(len(work), NONE, np.int64)
    some = np.flatnonzero(operator != NONE)
    of_operator = _operator_bytes(device, calls, host, host_of_call, operator[some])
    found[some] = np.where(of_operator < 0, NONE, 0)
    main = _longest(work, operator)
    found[main] = of_operator[np.searchsorted(some, main)]
    size = np.full(len(device), NONE, np.int64)
    size[device.transfers.row] = device.transfers.size_bytes
    own = size[work.row]
    return np.where(own >= 0, own, found)


def _operator_bytes(
    device: DeviceTrace, calls: Calls, host: HostTrace | None, host_of_call: Rows, some: Column
) -> Column:
    rows = host_of_call[some]
    sizes = np.full(len(some), NONE, np.int64)
    if host is not None:
        total = _row_bytes(host.inputs) + _row_bytes(host.outputs)
        sizes[rows != NONE] = total[rows[rows != NONE]]
    bare = np.flatnonzero(rows == NONE)
    texts, which = np.unique(device.arguments[calls.row[some[bare]]], return_inverse=True)
    by_text = [_argument_bytes(_json(device.texts, text)) for text in texts.tolist()]
    sizes[bare] = np.array(by_text, np.int64)[which] if len(bare) else 0
    return sizes


def _argument_bytes(given: Any) -> int:
    total = sum(shape_bytes(given["dims"], given["types"])) if given else NONE
    return total if total < 1 << 63 else NONE  # a shape that nobody has


def _row_bytes(tensors: Tensors) -> Column:
    """Bytes of each row's tensors."""
    sizes = tensors.elements.astype(np.int64) * tensors.element_bytes.astype(np.int64)
    total = np.concatenate(([0], np.cumsum(sizes)))
    rows: Column = total[tensors.start[1:]] - total[tensors.start[:-1]]
    return rows


def _around(calls: Calls, call: Column, wanted: Any) -> Column:
    """The innermost wanted call around (or at) each call, or NONE."""
    found = call.copy()
    while True:
        on = np.flatnonzero(found != NONE)
        on = on[~wanted[found[on]]]
        if not len(on):
            return found
        found[on] = calls.parent[found[on]]


def _longest(work: Work, group: Column) -> Column:
    """The longest work of each group, the first among equals, in ascending order."""
    some = np.flatnonzero(group != NONE)
    duration = work.end_ns[some] - work.start_ns[some]
    order = some[np.lexsort((some, -duration, group[some]))]
    is_first = np.insert(group[order][1:] != group[order][:-1], 0, True) if len(order) else np.zeros(0, bool)
    return np.sort(order[is_first])


def _json(texts: tuple[bytes, ...], at: int) -> Any:
    return json.loads(texts[at]) if at != ABSENT else None
