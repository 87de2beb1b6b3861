"""Queries that distinguish tensors and devices of CUDA, as in libraries for training."""

import torch
from torch import nn

first, second = torch.ones(4, device="cuda"), torch.ones(4, device="cuda")
assert first.data_ptr() != second.data_ptr()
assert first[1:].data_ptr() == first.data_ptr() + 4
assert first.type() == "torch.cuda.FloatTensor"
assert first.type(torch.bfloat16).type() == "torch.cuda.BFloat16Tensor"
assert torch.zeros(2).type("torch.cuda.HalfTensor").type() == "torch.cuda.HalfTensor"
assert torch.ones(4, pin_memory=True).is_pinned()

generator = torch.cuda.default_generators[torch.cuda.current_device()]
generator.set_state(torch.cuda.random.get_rng_state(device=0))

layer = nn.BatchNorm1d(4)
for tensor in (*layer.parameters(), *layer.buffers()):
    tensor.data = tensor.to("cuda")
assert all(tensor.is_cuda for tensor in (*layer.parameters(), *layer.buffers()))
assert isinstance(layer.weight, nn.Parameter)
assert layer.weight.requires_grad
layer(torch.ones(2, 4, device="cuda")).sum().backward()

norms = torch.tensor([first.norm(), second.norm()], device="cuda")
assert norms.shape == (2,)
assert norms.is_cuda

assert first.device.type == "cuda"
assert first.device == torch.device("cuda", torch.cuda.current_device())
assert torch.zeros(2, device=first.device).device == first.device
assert torch.accelerator.current_accelerator().type == "cuda"
assert torch.zeros(2).device.type == "cpu"
assert f"{first.sum():.1f}" == "4.0"

first.record_stream(torch.cuda.current_stream())
with torch.cuda.nvtx.range("sum"):
    first.sum()
torch.save({"weights": first}, "weights.pt")
generator = torch.Generator(device="cuda").manual_seed(1)
torch.randn(3, device="cuda", generator=generator)
assert isinstance(torch.default_generator, torch.Generator)
assert not torch.accelerator.current_stream().is_capturing()
