"""Two steps of a model of which a part is compiled: a module, a function, or nothing."""

import sys

import torch
import torch.distributed as dist
from torch import nn

WIDTH, ROWS = 64, 32
part = sys.argv[1]
dist.init_process_group("nccl")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.linear = nn.Parameter(torch.ones(WIDTH)), nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, data):
        data = self.linear(data)
        return activated(data, self.weight)


def activated(data, weight):
    wide = data.float()
    return (wide * torch.sigmoid(wide) + 1.0).to(torch.bfloat16) * weight


model = nn.Sequential(Block(), Block()).to("cuda", torch.bfloat16)
if part == "function":
    activated = torch.compile(activated, fullgraph=True)
elif part == "module":
    model = torch.compile(model)
elif part == "in-place":
    model[0].compile(dynamic=False)
    model[1] = torch.compile(model[1])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.randn(ROWS, WIDTH, dtype=torch.bfloat16, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
names = {name.replace("_orig_mod.", "") for name in model.state_dict()}
assert names == {"0.weight", "0.linear.weight", "1.weight", "1.linear.weight"}
