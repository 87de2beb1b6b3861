"""A step of experts on all ranks: tokens go to their experts by all-to-all, and come back.

in-turn: token i goes to expert i modulo the experts; routed: a router of random weights chooses.
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as exchange
from torch import nn

WIDTH, EXPERTS_OF_RANK = 64, 2
kind, tokens, place = sys.argv[1], int(sys.argv[2]), os.environ.get("DEVICE", "cuda")
dist.init_process_group("nccl" if place == "cuda" else "gloo")
world, device = dist.get_world_size(), torch.device(place)
experts = world * EXPERTS_OF_RANK
router = nn.Linear(WIDTH, experts).to(device)
own = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(EXPERTS_OF_RANK)).to(device)
optimizer = torch.optim.SGD([*router.parameters(), *own.parameters()], lr=0.1)
data = torch.randn(tokens, WIDTH, device=device)
weight, chosen = router(data).softmax(-1).topk(1)
if kind == "in-turn":
    chosen = (torch.arange(tokens, device=device) % experts)[:, None]
sent = torch.bincount(chosen.flatten(), minlength=experts)
received = torch.empty_like(sent)
dist.all_to_all_single(received, sent)
to_ranks = sent.view(world, -1).sum(1).tolist()
from_ranks = received.view(world, -1).sum(1).tolist()
order = chosen.flatten().argsort()
there = torch.empty(sum(from_ranks), WIDTH, device=device)
there = exchange.all_to_all_single(there, data[order], from_ranks, to_ranks)
parts = there.split(received.view(world, -1).T.flatten().tolist())
done = torch.cat([own[at // world](part) for at, part in enumerate(parts)])
back = torch.empty(tokens, WIDTH, device=device)
back = exchange.all_to_all_single(back, done, to_ranks, from_ranks)
(back * weight[order]).square().mean().backward()
optimizer.step()
