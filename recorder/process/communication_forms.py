"""Operators of communication: which of their arguments are groups, inputs, outputs and roots."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from msgspec import Struct
from torch.utils._pytree import tree_iter

from recorder.process.costs import size_of

Given = dict[str, Any]  # arguments by their names in the schema


class OperatorForm(Struct, frozen=True):
    """The positions of an operator's arguments and results in its schema."""

    kind: str
    inputs: str
    outputs: str  # same as inputs: in place
    gives: str  # the result: "pair", "work", "result"
    group: str = "process_group"
    root: str = ""
    is_asynchronous: bool | None = None  # None: given by the call


C10D = {
    "allreduce_": OperatorForm("all_reduce", "tensors", "tensors", "pair"),
    "allreduce_coalesced_": OperatorForm("all_reduce", "tensors", "tensors", "work"),
    "broadcast_": OperatorForm("broadcast", "tensors", "tensors", "pair", root="root_rank"),
    "reduce_": OperatorForm("reduce", "tensors", "tensors", "work", root="root_rank"),
    "allgather_": OperatorForm("all_gather", "input_tensors", "output_tensors", "pair"),
    "_allgather_base_": OperatorForm("all_gather", "input_tensor", "output_tensor", "pair"),
    "allgather_into_tensor_coalesced_": OperatorForm("all_gather", "inputs", "outputs", "work"),
    "allgather_coalesced_": OperatorForm("all_gather", "input_list", "output_lists", "work"),
    "reduce_scatter_": OperatorForm("reduce_scatter", "input_tensors", "output_tensors", "pair"),
    "_reduce_scatter_base_": OperatorForm("reduce_scatter", "input_tensor", "output_tensor", "pair"),
    "reduce_scatter_tensor_coalesced_": OperatorForm("reduce_scatter", "inputs", "outputs", "work"),
    "alltoall_base_": OperatorForm("all_to_all", "input", "output", "work"),
    "alltoall_": OperatorForm("all_to_all", "input_tensors", "output_tensors", "pair"),
    "gather_": OperatorForm("gather", "input_tensors", "output_tensors", "work", root="root_rank"),
    "scatter_": OperatorForm("scatter", "input_tensors", "output_tensors", "pair", root="root_rank"),
    "barrier": OperatorForm("barrier", "", "", "work"),
    "send": OperatorForm("send", "tensors", "", "work", root="dst", is_asynchronous=True),
    "recv_": OperatorForm("receive", "", "tensors", "work", root="src", is_asynchronous=True),
}


def _functional(kind: str, inputs: str = "input", root: str = "") -> OperatorForm:
    return OperatorForm(kind, inputs, "", "result", "group_name", root, is_asynchronous=True)


FUNCTIONAL = {
    "all_reduce": _functional("all_reduce"),
    "all_reduce_": _functional("all_reduce"),
    "all_reduce_coalesced": _functional("all_reduce", "inputs"),
    "all_reduce_coalesced_": _functional("all_reduce", "inputs"),
    "all_gather_into_tensor": _functional("all_gather"),
    "all_gather_into_tensor_out": _functional("all_gather"),
    "all_gather_into_tensor_coalesced": _functional("all_gather", "inputs"),
    "reduce_scatter_tensor": _functional("reduce_scatter"),
    "reduce_scatter_tensor_out": _functional("reduce_scatter"),
    "reduce_scatter_tensor_coalesced": _functional("reduce_scatter", "inputs"),
    "all_to_all_single": _functional("all_to_all"),
    "broadcast": _functional("broadcast", root="src"),
    "broadcast_": _functional("broadcast", root="src"),
    "shard_dim_alltoall": _functional("all_to_all"),
}


def bound(func: Any, args: Any, kwargs: Any) -> Given:
    """Return arguments by name; dispatch leaves out those that equal their defaults."""
    given = {
        argument.name: argument.default_value
        for argument in func._schema.arguments
        if argument.has_default_value()
    }
    given.update(zip((argument.name for argument in func._schema.arguments), args, strict=False))
    given.update(kwargs)
    return given


def tensors_of(given: Any) -> list[torch.Tensor]:
    return [value for value in tree_iter(given) if isinstance(value, torch.Tensor)]


def reduction_of(given: Given) -> str:
    """Return the reduction of a collective: sum, avg, max, …"""
    operation = given.get("reduce_op", "")
    if isinstance(operation, str):
        return operation.lower()
    return str(dist.ReduceOp.RedOpType(operation.op()).name).lower()


def splits_of(
    form: OperatorForm, given: Given, inputs: list[torch.Tensor], outputs: list[torch.Tensor], members: int
) -> list[int]:
    """Return the bytes for each member, for an all-to-all with uneven or rank-dependent shares."""
    if form.kind != "all_to_all":
        return []
    sent = _shares(inputs, given.get("input_split_sizes"), members)
    received = _shares(outputs, given.get("output_split_sizes"), members)
    return sent if len({*sent, *received}) > 1 else []


def _shares(tensors: list[torch.Tensor], rows: list[int] | None, members: int) -> list[int]:
    """Return the bytes of each member's part."""
    if len(tensors) == members > 1:
        return [size_of([tensor]) for tensor in tensors]
    whole = size_of(tensors)
    if not rows:
        return [whole // members] * members
    return [whole * int(row) // max(sum(rows), 1) for row in rows]
