"""Two steps as trainers make them: checkpoints, autocast, scaling, clipping, gradients of two batches.

ddp: replicas; hsdp: shards by FSDP2 within pairs of ranks, replicated over the pairs.
"""

import contextlib
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint

WIDTH, ROWS, BLOCKS, BATCHES = 64, 8, 2, 2
kind, place = sys.argv[1], os.environ.get("DEVICE", "cuda")
dist.init_process_group("nccl" if place == "cuda" else "gloo")
world, device = dist.get_world_size(), torch.device(place)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, data):
        return data + nn.functional.gelu(self.linear(self.norm(data)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks, self.head = nn.ModuleList(Block() for _ in range(BLOCKS)), nn.Linear(WIDTH, 1)

    def forward(self, data):
        for block in self.blocks:
            data = checkpoint(block, data, use_reentrant=False)
        return self.head(data)


model = Model().to(device)
if kind == "hsdp":
    mesh = init_device_mesh(place, (world // 2, 2), mesh_dim_names=("replicate", "shard"))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    scaler = None
else:
    model = nn.parallel.DistributedDataParallel(model)
    scaler = torch.amp.GradScaler(place)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))
for _ in range(2):
    for batch in range(BATCHES):
        is_last = batch == BATCHES - 1
        waits = contextlib.nullcontext()
        if kind == "hsdp":
            model.set_requires_gradient_sync(is_last)
        elif not is_last:
            waits = model.no_sync()
        with waits:
            with torch.autocast(place, torch.bfloat16):
                loss = model(torch.randn(ROWS, WIDTH, device=device)).square().mean() / BATCHES
            (scaler.scale(loss) if scaler else loss).backward()
    if scaler:
        scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if scaler:
        scaler.step(optimizer)
        scaler.update()
    else:
        optimizer.step()
    schedule.step()
    optimizer.zero_grad()
