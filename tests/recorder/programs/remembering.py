"""Two steps of blocks whose memory is mostly activations, or mostly weights.

plain; checkpoints, reentrant and composable ones; sharded by FSDP2; unfetched: sharded, and weights are not
gathered for the next block on the way back.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._composable import checkpoint as composable
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint

BLOCKS = int(sys.argv[4]) if len(sys.argv) > 4 else 4
kind, width, rows = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
place = os.environ.get("DEVICE", "cuda")
dist.init_process_group("nccl" if place == "cuda" else "gloo")
device = torch.device(place)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, data):
        return data + self.down(nn.functional.gelu(self.up(self.norm(data))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))

    def forward(self, data):
        for block in self.blocks:
            if kind in ("checkpoints", "reentrant"):
                data = checkpoint(block, data, use_reentrant=kind == "reentrant")
            else:
                data = block(data)
        return data


with device:
    model = Model()
if kind == "composable":
    for block in model.blocks:
        composable(block)
if kind in ("sharded", "unfetched"):
    mesh = init_device_mesh(place, (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
if kind == "unfetched":
    for block in model.blocks:
        block.set_modules_to_backward_prefetch([block])  # in place of the one before it
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
for _ in range(2):
    data = torch.randn(rows, width, device=device, requires_grad=kind == "reentrant")
    model(data).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
