"""A program that fails inside backward()."""

import torch


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, data):  # noqa: ARG004
        return data * 2

    @staticmethod
    def backward(ctx, gradient):  # noqa: ARG004
        raise ValueError("wrong in the middle")


data = torch.ones(8, device="cuda", requires_grad=True)
Wrong.apply(data).sum().backward()
