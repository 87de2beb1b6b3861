"""Results of unknown size: a mask, unique, nonzero."""

import sys

import torch

data = torch.randn(64, device="cuda")
if sys.argv[1] == "mask":
    data[data > 0].sum()
elif sys.argv[1] == "unique":
    torch.unique(data)
elif sys.argv[1] == "nonzero":
    data.nonzero()
elif sys.argv[1] == "known":
    even = torch.arange(64, device="cuda") % 2 == 0
    if data[even].shape != (32,):
        raise SystemExit("a mask that is known")
