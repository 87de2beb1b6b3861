"""Adjustments of libraries, applied as soon as the program imports them.

transformers detects fake tensors and then behaves as in a trace, with kernels that no GPU would run. FSDP2
splits weights into a piece for every rank, of which it uses its own. Zero bubble iterates over sets of
autograd's nodes, in an order that depends on addresses.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch

from recorder.process.operators import RecordingError
from recorder.process.redirect import here
from recorder.process.tape import user_place


def _transformers(module: ModuleType) -> None:
    vars(module)["is_fake_tensor"] = lambda _: False


class _Pieces(Sequence[torch.Tensor]):
    """A tensor in equal pieces, the last ones smaller or empty; each is split off on first use."""

    def __init__(self, tensor: torch.Tensor, pieces: int, dim: int) -> None:
        self._tensor, self._pieces, self._dim = tensor, pieces, dim

    def __len__(self) -> int:
        return self._pieces

    def __getitem__(self, at: Any) -> Any:
        size = self._tensor.size(self._dim)
        length = -(-size // self._pieces)
        start = range(self._pieces)[at] * length
        if start >= size:
            return self._tensor.new_empty(0)
        return self._tensor.narrow(self._dim, start, min(length, size - start))


def _fsdp(module: ModuleType) -> None:
    vars(module)["_chunk_with_empty"] = _Pieces


def _fsdp_of_modules(module: ModuleType) -> None:
    """Make the device that FSDP1 gets as a number the recording one, on any rank."""
    find = module._get_device_from_device_id
    vars(module)["_get_device_from_device_id"] = lambda *given: here(find(*given))


def _attention(module: ModuleType) -> None:
    vars(module)["activate_flash_attention_impl"] = lambda *_, **__: None  # its kernels are not needed


def _pipelining(module: ModuleType) -> None:
    """Order gradients of weights by the order of the weights, so that recordings are repeatable."""
    find = module.get_param_groups

    def groups(inputs: list[Any], weights: list[Any], edges: Any) -> Any:
        parts = find(inputs, weights, edges)
        place = {weight: at for at, weight in enumerate(weights)}
        for group in parts:
            group["params"] = sorted(group["params"], key=place.__getitem__)
            group["intermediates"] = sorted(group["intermediates"], key=lambda node: node._sequence_nr())
        return parts

    vars(module)["get_param_groups"] = groups


def _flexible_attention(module: ModuleType) -> None:
    """Refuse FlexAttention, whose kernels depend on the blocks of a mask."""

    def refuse(*_: Any) -> None:
        raise RecordingError(
            f"{user_place()}: FlexAttention is not recorded: use scaled_dot_product_attention"
        )

    vars(module)["_validate_device"] = refuse


def _triton(module: ModuleType) -> None:
    """Refuse launches of Triton's kernels, whose shapes nothing states."""

    def refuse(kernel: Any, *_: Any, **__: Any) -> None:
        name = getattr(kernel, "__name__", "a kernel")
        raise RecordingError(
            f"{user_place()}: the Triton kernel {name} is not recorded: call it in a function with "
            "torch.library.custom_op and register_fake, which state its shapes, and register_flop_formula"
        )

    module.JITFunction.run = refuse


_ADJUSTMENTS: dict[str, Callable[[ModuleType], None]] = {
    "transformers.utils.import_utils": _transformers,
    "triton.runtime.jit": _triton,
    "torch.nn.attention": _attention,
    "torch.nn.attention.flex_attention": _flexible_attention,
    "torch.distributed.pipelining._backward": _pipelining,
    "torch.distributed.fsdp._fully_shard._fsdp_param": _fsdp,
    "torch.distributed.fsdp._init_utils": _fsdp_of_modules,
}


class _Loader(importlib.abc.Loader):
    """A loader that delegates to another one and then adjusts the module."""

    def __init__(self, inner: Any, adjust: Callable[[ModuleType], None]) -> None:
        self._inner, self._adjust = inner, adjust

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._inner.exec_module(module)
        self._adjust(module)


class _Finder(importlib.abc.MetaPathFinder):
    """A finder of the modules to adjust, through the finders behind it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        adjust = _ADJUSTMENTS.get(fullname)
        if adjust is None:
            return None
        for finder in sys.meta_path:
            if finder is not self and (spec := finder.find_spec(fullname, path, target)) is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, adjust)
                return spec
        return None


def adjust_libraries() -> None:
    """Adjust the libraries that are imported already, and others on import."""
    for name, adjust in _ADJUSTMENTS.items():
        if name in sys.modules:
            adjust(sys.modules[name])
    sys.meta_path.insert(0, _Finder())
