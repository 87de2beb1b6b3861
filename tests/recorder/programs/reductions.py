"""Reductions of known values; the program ends with an error if they are wrong."""

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

dist.init_process_group("nccl")
MEMBERS = dist.get_world_size()
for name, factor in (("sum", MEMBERS), ("avg", 1), ("max", 1), ("min", 1)):
    values = torch.arange(4, device="cuda", dtype=torch.float32)
    expected = [factor * value for value in (0, 1, 2, 3)]
    if functional.all_reduce(values, name, dist.group.WORLD).tolist() != expected:
        raise SystemExit(f"functional {name}")
    dist.all_reduce(values, op=getattr(dist.ReduceOp, name.upper()))
    if values.tolist() != expected:
        raise SystemExit(name)
