"""The device on which programs run: no memory, no kernels, but streams, events, autocast and a name.

PyTorch calls such a device PrivateUse1. Operators never reach it: the dispatch mode (`operators`) handles
them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import backend_registration

from recorder.process.streams import NAME, DeviceModule

# kernels of CUDA that PyTorch would decompose on a device without its own
_WHOLE = ("silu_backward", "_fused_rms_norm", "_fused_rms_norm_backward", "mish_backward")

# Operators that autocast runs in the lower precision, and in single precision, as in docs/source/amp.rst of
# PyTorch.
_LOWER = (
    *("mm", "bmm", "addmm", "baddbmm", "addbmm", "addmv", "mv", "matmul", "linear", "chain_matmul", "addr"),
    *("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d.input", "conv_transpose3d.input"),
    *("convolution", "prelu", "linalg_vecdot", "scaled_dot_product_attention"),
)
_SINGLE = (
    *(
        "acos",
        "asin",
        "cosh",
        "erfinv",
        "exp",
        "expm1",
        "log",
        "log10",
        "log2",
        "log1p",
        "reciprocal",
        "rsqrt",
    ),
    *("sinh", "tan", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "softplus", "layer_norm"),
    *(
        "native_layer_norm",
        "group_norm",
        "norm.Scalar",
        "norm.ScalarOpt_dim",
        "cosine_similarity",
        "mse_loss",
    ),
    *("cosine_embedding_loss", "nll_loss", "nll_loss2d", "hinge_embedding_loss", "kl_div", "l1_loss", "dist"),
    *(
        "smooth_l1_loss",
        "huber_loss",
        "margin_ranking_loss",
        "multi_margin_loss",
        "soft_margin_loss",
        "renorm",
    ),
    *("triplet_margin_loss", "binary_cross_entropy_with_logits", "pdist", "cdist", "logsumexp"),
    *(
        "softmax.int",
        "log_softmax.int",
        "prod",
        "prod.dim_int",
        "cumprod",
        "cumsum",
        "sum",
        "sum.dim_IntList",
    ),
)


def register_device(module: DeviceModule) -> list[torch.library.Library]:
    """Register the device; the registrations hold as long as the returned objects."""
    backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=module)
    torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(..., device=) would run kernels otherwise
    whole = torch.library.Library("aten", "IMPL")
    for name in _WHOLE:
        whole.impl(name, _never, "PrivateUse1")
    return [whole, *_register_autocast()]


def _never(*_: Any, **__: Any) -> None:
    raise AssertionError("an operator reached the device, past the dispatch mode")


def _register_autocast() -> list[torch.library.Library]:
    everything = torch.library.Library("_", "IMPL", "AutocastPrivateUse1")
    everything.fallback(torch.library.fallthrough_kernel)
    lists = torch.library.Library("aten", "IMPL", "AutocastPrivateUse1")
    casts = AutocastCasts()
    for names, is_lower in ((_LOWER, True), (_SINGLE, False)):
        for name in names:
            packet, _, overload = name.partition(".")
            operator = getattr(getattr(torch.ops.aten, packet), overload or "default")
            lists.impl(name, casts.around(operator, is_lower=is_lower), "AutocastPrivateUse1")
    return [everything, lists]


class AutocastCasts:
    """Casts of arguments; those of weights are made once until autocast ends, as on CUDA."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        clear = torch.clear_autocast_cache

        def cleared() -> None:
            self._kept.clear()
            clear()

        torch.clear_autocast_cache = cleared

    def around(self, operator: Any, *, is_lower: bool) -> Callable[..., Any]:
        """Return an operator with its arguments cast."""

        def call(*args: Any, **kwargs: Any) -> Any:
            wanted = torch.get_autocast_dtype(NAME) if is_lower else torch.float32
            with torch._C._ExcludeDispatchKeyGuard(
                torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)
            ):
                return operator(
                    *(self._cast(arg, wanted) for arg in args),
                    **{key: self._cast(arg, wanted) for key, arg in kwargs.items()},
                )

        return call

    def _cast(self, value: Any, wanted: torch.dtype) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(self._cast(part, wanted) for part in value)
        is_eligible = (
            isinstance(value, torch.Tensor)
            and value.device.type == NAME
            and value.is_floating_point()
            and value.dtype not in (torch.float64, wanted)
        )
        if not is_eligible:
            return value
        if not (wanted is not torch.float32 and value.requires_grad and value.is_leaf):
            return value.to(wanted)
        if not torch.is_autocast_cache_enabled():
            return value.to(wanted)
        result = self._kept.get(id(value))
        if result is None:
            result = self._kept[id(value)] = (value, value.to(wanted))
        return result[1]
