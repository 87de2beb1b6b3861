"""One step of blocks that are sharded by FSDP2, and split by tensor parallelism."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

WIDTH, ROWS, BLOCKS = 256, 128, int(sys.argv[2]) if len(sys.argv) > 2 else 3


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, data):
        return data + self.down(nn.functional.silu(self.up(data)))


place = os.environ.get("DEVICE", "cuda")
dist.init_process_group("nccl" if place == "cuda" else "gloo")
tensor = int(sys.argv[1])
mesh = init_device_mesh(place, (dist.get_world_size() // tensor, tensor), mesh_dim_names=("dp", "tp"))
with torch.device("meta"):
    model = nn.Sequential(*(Block() for _ in range(BLOCKS)))
precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for block in model:
    parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    fully_shard(block, mesh=mesh["dp"], mp_policy=precision)
fully_shard(model, mesh=mesh["dp"], mp_policy=precision)
model.to_empty(device=place)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=place == "cuda")
model(torch.randn(ROWS, WIDTH, device=place)).sum().backward()
optimizer.step()
