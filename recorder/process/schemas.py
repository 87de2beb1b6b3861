"""Properties of operators from their schemas: launches of kernels, written arguments, kinds."""

from __future__ import annotations

from typing import Any

import torch
from msgspec import Struct
from torch.utils.flop_counter import flop_registry

# operators of the device that launch nothing
_FREE = frozenset(
    (
        *("empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "_unsafe_view", "detach"),
        *("lift", "lift_fresh", "alias", "resize_", "set_", "is_same_size", "_has_same_storage_numel"),
        *("result_type", "record_stream", "resize_as_", "_shape_as_tensor", "is_pinned", "pin_memory"),
        *("lift_fresh_copy", "set_data", "_version", "_reshape_alias", "_backward", "sym_size", "sym_numel"),
    )
)
OVERWRITING = frozenset(
    ("copy_", "zero_", "fill_", "_foreach_copy_", "_foreach_zero_", "normal_", "uniform_")
)


class Operator(Struct, frozen=True):
    """The properties of an operator."""

    name: str
    is_free: bool
    is_random: bool
    is_pointwise: bool
    is_fusible: bool  # by a compiler, with its neighbours
    written: tuple[tuple[int, str], ...]  # places and names of written arguments
    outputs: tuple[str, ...]  # those of them that hold results only
    formula: Any = None  # of its operations, as registered with PyTorch's counter


def describe(func: Any) -> Operator:
    """Return the properties of an operator by its schema and tags."""
    schema = func._schema
    name = schema.name.partition("::")[2]
    written = tuple(
        (at, argument.name)
        for at, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )
    outputs = tuple(
        argument.name
        for at, argument in enumerate(schema.arguments)
        if argument.kwarg_only and (at, argument.name) in written
    )
    aliases = [value.alias_info for value in schema.returns]
    is_view = bool(aliases) and all(alias is not None and not alias.is_write for alias in aliases)
    tags = func.tags
    is_pointwise = (
        torch.Tag.pointwise in tags
        or torch.Tag.reduction in tags
        or name.startswith("_foreach_")
        or torch.Tag.nondeterministic_seeded in tags
        or name in _LIKE_POINTWISE
    )
    is_free = is_view or name in _FREE or func.namespace == "prim"
    is_fusible = torch.Tag.pointwise in tags or name == "_to_copy"
    is_random = torch.Tag.nondeterministic_seeded in tags
    formula = flop_registry.get(func.overloadpacket)
    return Operator(name, is_free, is_random, is_pointwise, is_fusible, written, outputs, formula)


# kernels that read and write their tensors once, with about one operation per element
_LIKE_POINTWISE = frozenset(
    (
        *(
            "silu_backward",
            "native_layer_norm_backward",
            "_fused_rms_norm_backward",
            "_softmax_backward_data",
        ),
        *("_log_softmax_backward_data", "nll_loss_forward", "nll_loss_backward", "embedding_dense_backward"),
        *("gelu_backward", "native_dropout", "native_dropout_backward", "arange", "tril", "triu", "index"),
        *("gather", "scatter_", "scatter", "scatter_add_", "scatter_add", "index_put_", "index_put"),
        *("index_add_", "index_add", "threshold_backward", "native_batch_norm", "native_batch_norm_backward"),
        *("_native_batch_norm_legit", "cumsum", "sort", "topk", "max_pool2d_with_indices", "masked_fill_"),
        *("max_pool2d_with_indices_backward", "_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward"),
        *(
            "linalg_vector_norm",
            "sum",
            "mean",
            "amax",
            "amin",
            "any",
            "all",
            "max",
            "min",
            "argmax",
            "var_mean",
        ),
        *(
            "_amp_foreach_non_finite_check_and_unscale_",
            "_amp_update_scale_",
            "native_group_norm",
            "cudnn_batch_norm",
        ),
        *(
            "tanh_backward",
            "sigmoid_backward",
            "logsumexp",
            "select_scatter",
            "flip",
            "one_hot",
            "histc",
            "bincount",
        ),
        *("mse_loss", "mse_loss_backward", "scalar_tensor", "__or__", "__and__", "__xor__"),
        *(
            "_batch_norm_with_update",
            "batch_norm_backward",
            "native_group_norm_backward",
            "avg_pool2d",
            "where",
        ),
    )
)
