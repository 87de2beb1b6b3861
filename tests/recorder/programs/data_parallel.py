"""Two steps of a data-parallel training, written for GPUs; some weights may be unused."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("nccl" if os.environ.get("DEVICE", "cuda") == "cuda" else "gloo")
place_of = os.environ.get("DEVICE", "cuda")
local = int(os.environ["LOCAL_RANK"])
if place_of == "cuda":
    torch.cuda.set_device(local)
device = torch.device("cuda", local) if place_of == "cuda" else torch.device("cpu")
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64), nn.BatchNorm1d(64)).to(device)
ids, is_unused = [local] if place_of == "cuda" else None, "unused" in sys.argv
if is_unused:
    model[0].unused = nn.Parameter(torch.zeros(8, device=device))
model = DistributedDataParallel(model, device_ids=ids, find_unused_parameters=is_unused)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(2):
    data, target = torch.randn(32, 64, device=device), torch.randn(32, 64).to(device)
    loss = nn.functional.mse_loss(model(data), target)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if not loss.item() >= 0:
        raise SystemExit("loss is not a number")
dist.destroy_process_group()
