"""A real process of a program, on gloo, which writes its communication.

DEVICE=cpu … python gloo_worker.py OUTPUT PROGRAM ARGUMENTS…
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensor  # DTensor uses it to infer shapes
from torch.distributed import ProcessGroup
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

# operator -> kind, the argument with the input of a rank, and the argument with the other end
KINDS = {
    "allreduce_": ("ALL_REDUCE", "tensors", ""),
    "allreduce_coalesced_": ("ALL_REDUCE", "tensors", ""),
    "broadcast_": ("BROADCAST", "tensors", "root_rank"),
    "_allgather_base_": ("ALL_GATHER", "input_tensor", ""),
    "_reduce_scatter_base_": ("REDUCE_SCATTER", "input_tensor", ""),
    "allgather_": ("ALL_GATHER", "input_tensors", ""),
    "alltoall_base_": ("ALL_TO_ALL", "input", ""),
    "barrier": ("BARRIER", "", ""),
    "send": ("SEND", "tensors", "dst"),
    "recv_": ("RECEIVE", "tensors", "src"),
    "all_reduce": ("ALL_REDUCE", "input", ""),
    "all_gather_into_tensor": ("ALL_GATHER", "input", ""),
    "reduce_scatter_tensor": ("REDUCE_SCATTER", "input", ""),
    "all_to_all_single": ("ALL_TO_ALL", "input", ""),
}


class Listener(TorchDispatchMode):
    """A mode that records sent tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.communicated: list[list[Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(type_ not in (torch.Tensor, torch.nn.Parameter, FakeTensor) for type_ in types):
            return NotImplemented
        name = func._schema.name.partition("::")[2]
        if func.namespace in ("c10d", "_c10d_functional") and name in KINDS:
            given = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False))
            given |= kwargs or {}
            group: Any = given.get("process_group", given.get("group_name"))
            group = (
                dist.distributed_c10d._resolve_process_group(group)
                if isinstance(group, str)
                else ProcessGroup.unbox(group)
            )
            kind, inputs, end = KINDS[name]
            tensors = [value for value in tree_iter(given.get(inputs)) if isinstance(value, torch.Tensor)]
            members = dist.get_process_group_ranks(group)
            peer = members[given[end]] if end else -1
            size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
            if len(members) > 1:
                result = [] if kind in ("SEND", "RECEIVE") else sorted(members)
                self.communicated.append([kind, size, result, peer])
        return func(*args, **(kwargs or {}))


if __name__ == "__main__":
    output, script, *rest = sys.argv[1:]
    sys.argv = [script, *rest]
    with torch.autograd.set_multithreading_enabled(False), Listener() as listener:
        runpy.run_path(script, run_name="__main__")
    Path(output).write_text(json.dumps(listener.communicated), encoding="utf-8")
