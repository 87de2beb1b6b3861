"""Reads of known values and of values that became unknown, and comparisons."""

import torch
import torch.distributed as dist

dist.init_process_group("cpu:gloo,cuda:nccl")
assert dist.get_backend() == "nccl"
assert dist.get_backend(dist.new_group([0, 1], backend="gloo")) == "gloo"
world, rank = dist.get_world_size(), dist.get_rank()
unknown = torch.randn((), device="cuda")

# An unknown value is written through a view: the rest becomes unknown, too, and reads as zero.
sums = torch.zeros(2, device="cuda")
sums[0] += unknown
sums[1] += 4
assert sums.sum().item() == 0
whole = torch.ones(3, device="cuda")
part = whole[1:]
whole.mul_(unknown)
assert part.sum().item() == 0
assert torch.empty(4, device="cuda").sum().item() == 0

# Assigned values are known again, in the view that was written.
part.fill_(3)
assert part.sum().item() == 6
fresh = torch.empty(4, device="cuda")
fresh[:2] = 5
assert fresh[:2].sum().item() == 0  # another view
fresh.zero_()
fresh[0] += 1
assert fresh.tolist() == [1, 0, 0, 0]

# Every entry of a gather is distinct from its input.
mine = torch.ones(1, device="cuda")
gathered = [torch.zeros(1, device="cuda") for _ in range(world)]
dist.all_gather(gathered, mine)
gathered[0] += 5
mine += 100
assert [tensor.item() for tensor in gathered] == [6.0, *[1.0] * (world - 1)]

# On the host.
ours = torch.full((2,), 2.0)
lists = [torch.zeros(2) for _ in range(world)]
dist.gather(ours, lists if rank == 0 else None, dst=0)
assert rank or torch.stack(lists).sum().item() == 4 * world
got = torch.zeros(2)
dist.scatter(got, [torch.full((2,), float(at + 1)) for at in range(world)] if rank == 0 else None, src=0)
assert rank or got.tolist() == [1, 1]
dist.all_reduce(ours, op=dist.ReduceOp.PRODUCT)
assert ours.tolist() == [2.0**world] * 2
names = [None] * world
dist.gather_object("name", names if rank == 0 else None, dst=0)
assert rank or names == ["name"] * world
