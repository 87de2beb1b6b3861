"""Two steps of a pipeline, by any of PyTorch's schedules, on DEVICE or "cuda"."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import pipelining
from torch.distributed.device_mesh import init_device_mesh

WIDTH, MICRO_BATCHES, ROWS = 64, 4, 2
kind, stages = sys.argv[1], int(sys.argv[2])
chunks = 2 if "Interleaved" in kind or "ZBV" in kind else 1
place_of = os.environ.get("DEVICE", "cuda")
dist.init_process_group("gloo" if place_of == "cpu" else "nccl")
mesh = init_device_mesh(place_of, (dist.get_world_size() // stages, stages), mesh_dim_names=("dp", "pp"))
place, device = mesh["pp"].get_local_rank(), torch.device(place_of)


def block():
    return nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH)).to(device)


modules = [block() for _ in range(chunks)]
group = mesh["pp"].get_group()
last = stages * chunks - 1
numbers = (place, last - place) if "ZBV" in kind else [place + at * stages for at in range(chunks)]
parts = [
    pipelining.PipelineStage(module, number, stages * chunks, device, group=group)
    for module, number in zip(modules, numbers, strict=True)
]
schedule = getattr(pipelining, f"Schedule{kind}")(
    parts if chunks > 1 else parts[0], MICRO_BATCHES, loss_fn=nn.functional.mse_loss
)
optimizer = torch.optim.SGD([weight for module in modules for weight in module.parameters()], lr=0.1)
data, target = (torch.randn(MICRO_BATCHES * ROWS, WIDTH, device=device) for _ in range(2))
for _ in range(2):
    inputs = (data,) if place == 0 else ()
    schedule.step(*inputs, **({"target": target, "losses": []} if last in numbers else {}))
    optimizer.step()
    optimizer.zero_grad()
