"""Redirection of "cuda" to the recording device, in arguments and in results.

A function mode rewrites the devices of calls.
"""

from __future__ import annotations

import copyreg
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils._pytree import tree_map_only

from recorder.process.streams import NAME
from recorder.process.values import set_value, value_of

CUDA = "cuda"
INSIDE = (str(Path(torch.__file__).parent), str(Path(__file__).parent))  # files that are not the program's


def here(value: Any) -> Any:
    """Return a device of CUDA as the recording one; any other value unchanged."""
    if isinstance(value, torch.device):
        return torch.device(NAME, 0) if value.type in (CUDA, NAME) else value
    if isinstance(value, str) and value.partition(":")[0] in (CUDA, NAME):
        return f"{NAME}:0"  # for any LOCAL_RANK: the device guard supports one device
    return value


DECOMPOSED = F.scaled_dot_product_attention  # as PyTorch has it


class Redirect(TorchFunctionMode):
    """A function mode for devices in the arguments of PyTorch's functions."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        special = _SPECIAL.get(func)
        if special is not None:
            return special(*args, **kwargs)
        if args:
            args = tuple(here(arg) if isinstance(arg, str | torch.device) else arg for arg in args)
        if "device" in kwargs:
            device = kwargs["device"]
            kwargs = {**kwargs, "device": torch.device(NAME, 0) if isinstance(device, int) else here(device)}
        return func(*args, **kwargs)


def _device(first: Any, *rest: Any, **named: Any) -> torch.device:
    """Make a device, which stays "cuda" for comparisons in programs; it is rewritten where it is used."""
    return torch.device(CUDA, first) if isinstance(first, int) else torch.device(first, *rest, **named)


def _to_device(tensor: torch.Tensor, *_: Any, non_blocking: bool = False, **__: Any) -> torch.Tensor:
    return tensor.to(torch.device(NAME, 0), non_blocking=non_blocking)


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Return the kernel that CUDA would choose; PyTorch decomposes attention on other devices."""
    plain = functools.partial(DECOMPOSED, dropout_p=dropout_p, is_causal=is_causal)
    if query.device.type != NAME or query.dim() != 4:
        return plain(query, key, value, attn_mask=attn_mask, scale=scale, enable_gqa=enable_gqa)
    if torch.is_autocast_enabled(NAME):
        wanted = torch.get_autocast_dtype(NAME)
        query, key, value = (tensor.to(wanted) for tensor in (query, key, value))
    if attn_mask is None and query.dtype in (torch.float16, torch.bfloat16):
        flash = torch.ops.aten._scaled_dot_product_flash_attention
        result = flash(query, key, value, dropout_p, is_causal, scale=scale)
        return result[0]
    if enable_gqa and key.shape[1] != query.shape[1]:
        times = query.shape[1] // key.shape[1]
        key, value = (tensor.repeat_interleave(times, 1) for tensor in (key, value))
    if attn_mask is not None and attn_mask.dtype is torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill_(~attn_mask, float("-inf"))
    if attn_mask is not None:
        sizes = (query.shape[0], query.shape[1], query.shape[2], key.shape[2])
        attn_mask = attn_mask.to(query.dtype).expand(sizes)
    efficient = torch.ops.aten._scaled_dot_product_efficient_attention
    log_sum = query.requires_grad or key.requires_grad or value.requires_grad
    result = efficient(query, key, value, attn_mask, log_sum, dropout_p, is_causal, scale=scale)
    return result[0]


def attention_of_modules(*given: Any, **named: Any) -> torch.Tensor:
    """Return the attention of modules, whose forward pass calls it where the function mode is off."""
    is_redirected = any(isinstance(mode, Redirect) for mode in _get_current_function_mode_stack())
    return DECOMPOSED(*given, **named) if is_redirected else _attention(*given, **named)


def _ctc_loss(
    scores: torch.Tensor,
    targets: torch.Tensor,
    lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> torch.Tensor:
    """Reduce the losses of sequences; PyTorch would divide them by lengths of the host."""
    losses = F.ctc_loss(scores, targets, lengths, target_lengths, blank, "none", zero_infinity)
    if reduction == "mean":
        divisors = torch.as_tensor(target_lengths).to(losses.device).clamp_min(1)
        return (losses / divisors).mean()
    return losses.sum() if reduction == "sum" else losses


def _type_name(tensor: torch.Tensor, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Return `tensor.type()` as on CUDA, where it names the class of a tensor."""
    if dtype is None and tensor.device.type == NAME:
        return tensor.type().replace(f"torch.{NAME}.", "torch.cuda.")
    if isinstance(dtype, str) and dtype.startswith("torch.cuda."):
        return tensor.to(torch.device(NAME, 0), getattr(torch, dtype.rpartition(".")[2]).dtype)
    return tensor.type(dtype, *args, **kwargs)


def fake_device(tensor: FakeTensor) -> torch.device:
    """Return the device of a fake tensor by thread: within one of its kernels it is on "meta"."""
    if torch._C._meta_in_tls_dispatch_include():
        return torch.device("meta")
    return reported_device(tensor.fake_device, sys._getframe(1))


def reported_device(device: torch.device, caller: FrameType) -> torch.device:
    """Return "cuda" to programs, which compare devices with it, and the recording device to PyTorch
    itself.
    """
    if device.type != NAME or caller.f_code.co_filename.startswith(INSIDE):
        return device
    return torch.device(CUDA, int(os.environ["LOCAL_RANK"]))


def _format(tensor: torch.Tensor, spec: str) -> str:
    if tensor.dim() == 0 and isinstance(tensor, FakeTensor):
        return format(tensor.item(), spec)
    return torch.Tensor.__format__(tensor, spec)


def _tensor(data: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Make a tensor; a list of scalars on the device is read by the host, outside of all modes."""
    if isinstance(data, list | tuple):
        data = tree_map_only(FakeTensor, lambda scalar: scalar.item() if scalar.dim() == 0 else scalar, data)
    return torch.tensor(data, *args, **kwargs | {"device": here(kwargs.get("device"))})


def swap(first: torch.Tensor, second: torch.Tensor) -> None:
    """Swap like `torch.utils.swap_tensors`, which refuses tensors with weak references, as all fake ones
    have.
    """
    if first.device == second.device and first.dtype == second.dtype:
        return
    slots = copyreg._slotnames(type(first))  # type: ignore[attr-defined]
    for name in ("__class__", "__dict__", *slots):
        mine, other = getattr(first, name, None), getattr(second, name, None)
        setattr(first, name, other)
        setattr(second, name, mine)
    torch._C._swap_tensor_impl(first, second)


def _set_data(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """Set the data of a tensor, which PyTorch refuses between the host and a device of this kind."""
    if isinstance(tensor, FakeTensor) and not isinstance(value, FakeTensor):
        mode = tensor.fake_mode
        value = mode.fake_tensor_converter.from_real_tensor(mode, value)
    if torch._has_compatible_shallow_copy_type(tensor, value):
        torch.Tensor.data.__set__(tensor, value)
    elif isinstance(tensor, FakeTensor) and isinstance(value, FakeTensor):
        # PyTorch compares the backends of dispatch keys: they stay, as do gradient, hooks and attributes.
        is_ours = torch._C._dispatch_keys(tensor).has(torch._C.DispatchKey.PrivateUse1)
        alias = torch.Tensor._make_subclass(
            FakeTensor,
            value.detach(),
            dispatch_device=True,
            device_for_backend_keys=torch.device(f"{NAME}:0" if is_ours else "cpu"),
        )
        torch.Tensor.data.__set__(tensor, alias)
        set_value(tensor, value_of(value))
    else:
        swap(tensor, value.detach())
        return
    if isinstance(tensor, FakeTensor):
        tensor.fake_device = value.fake_device


def _address(tensor: torch.Tensor) -> int:
    """Return a distinct address per storage: fake memory has none, and programs distinguish tensors by it."""
    if not isinstance(tensor, FakeTensor):
        return tensor.data_ptr()
    return (tensor.untyped_storage()._cdata << 16) + tensor.storage_offset() * tensor.element_size()


_SPECIAL: dict[Any, Callable[..., Any]] = {
    torch.device: _device,
    torch.Tensor.cuda: _to_device,
    torch.Tensor.device.__get__: lambda tensor: reported_device(tensor.device, sys._getframe(2)),
    torch.Tensor.__format__: _format,
    torch.tensor: _tensor,
    torch.Tensor.type: _type_name,
    torch.Tensor.data_ptr: _address,
    torch.Tensor.data.__set__: _set_data,
    torch.Tensor.is_cuda.__get__: lambda tensor: tensor.device.type in (NAME, CUDA),
    torch.Tensor.pin_memory: lambda tensor, *_, **__: tensor,
    torch.Tensor.is_pinned: lambda *_, **__: True,
    DECOMPOSED: _attention,
    F.ctc_loss: _ctc_loss,
}
