"""The dispatch mode: each operator on the device becomes a node, and is computed on shapes alone.

Operators on small tensors of the host run as they are, so that loaders and configuration work. Not here:
communication (`collectives`), what a kernel costs (`costs`), and the device's name (`redirect`).
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
    unset_fake_temporarily,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map
from torch.utils.checkpoint import _StopRecomputationError

from et_sim.trace import shapes
from recorder.process.collectives import Collectives
from recorder.process.costs import DTYPES, Cost, cost_of, size_of
from recorder.process.experts import Experts
from recorder.process.objects import PeerNeeded
from recorder.process.phases import Phases
from recorder.process.places import user_place
from recorder.process.regions import Regions
from recorder.process.storages import Storages
from recorder.process.streams import NAME
from recorder.process.tape import Tape
from recorder.process.values import LARGEST, real_call, set_value, value_of
from recorder.recorded import Work

MOST_REAL = 1 << 20  # elements of a tensor of the host that is real
_PLAIN = (torch.Tensor, torch.nn.Parameter, FakeTensor, torch.nn.Buffer)
# Operators of the device that launch nothing.
_FREE = frozenset(
    (
        *("empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "_unsafe_view", "detach"),
        *("lift", "lift_fresh", "alias", "resize_", "set_", "is_same_size", "_has_same_storage_numel"),
        *("result_type", "record_stream", "resize_as_", "_shape_as_tensor", "is_pinned", "pin_memory"),
        *("lift_fresh_copy", "set_data", "_version", "_reshape_alias", "_backward", "sym_size", "sym_numel"),
    )
)
# The first argument is read only where rows of it are asked for.
_LOOKUPS = frozenset(("embedding", "index_select", "gather", "index", "_unsafe_index", "take_along_dim"))
_OVERWRITING = frozenset(
    ("copy_", "zero_", "fill_", "_foreach_copy_", "_foreach_zero_", "normal_", "uniform_")
)


class RecordingError(RuntimeError):
    """The program did what cannot be recorded."""


@dataclass(frozen=True, slots=True)
class Operator:
    """What the schema says of an operator."""

    name: str
    is_free: bool
    is_random: bool
    is_pointwise: bool
    is_fusible: bool  # by a compiler, with what comes before and after
    written: tuple[tuple[int, str], ...]  # places and names of arguments that are written
    outputs: tuple[str, ...]  # those of them that hold results only


class RecordingMode(TorchDispatchMode):
    """Recording of one rank."""

    def __init__(
        self,
        fake: FakeTensorMode,
        tape: Tape,
        storages: Storages,
        phases: Phases,
        collectives: Collectives,
        experts: Experts,
        regions: Regions,
    ) -> None:
        super().__init__()
        self._fake = fake
        self._tape, self._storages, self._phases = tape, storages, phases
        self._collectives, self._experts, self._regions = collectives, experts, regions
        self._known: dict[Any, Operator] = {}
        self._is_paused = False
        self._lock = threading.RLock()

    def pausing(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function whose operators are no work, as DTensor runs some on whole tensors for their shapes."""

        def call(*args: Any, **kwargs: Any) -> Any:
            before, self._is_paused = self._is_paused, True
            try:
                return function(*args, **kwargs)
            finally:
                self._is_paused = before

        return call

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(one not in _PLAIN for one in types):
            return NotImplemented  # a DTensor unfolds first, and its local operators come back
        if self._is_paused or _fake_mode() is not self._fake:
            return func(*args, **(kwargs or {}))
        try:
            with self._lock:  # fake tensors are not made for several threads at once
                return self._dispatch(func, args, kwargs or {})
        except (_StopRecomputationError, PeerNeeded):
            raise
        except BaseException:
            # An exception that leaves through C++ inside backward() may end the process without a word.
            if torch._C._current_autograd_node() is not None:
                self._tell()
            raise

    def _tell(self) -> None:
        traceback.print_exc()
        sys.stderr.flush()

    def _dispatch(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func.namespace in ("c10d", "_c10d_functional", "_dtensor") and self._collectives.knows(func):
            self._phases.look()
            return self._collectives.call(func, args, kwargs)
        if (
            func.namespace == "aten" and torch.is_inference_mode_enabled() and func._can_decompose()
        ):  # autograd would take it apart
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if func is torch.ops.aten.is_pinned.default:  # DDP asks whether it got what it allocated
            return True
        if kwargs.get("pin_memory"):
            kwargs = {**kwargs, "pin_memory": False}
        tensors = [one for one in tree_iter((args, kwargs)) if isinstance(one, torch.Tensor)]
        target = kwargs.get("device")
        if not any(isinstance(one, FakeTensor) for one in tensors):
            on_host = target is None or torch.device(target).type == "cpu"
            if on_host and (tensors or not self._is_large(func, args)):
                with unset_fake_temporarily():
                    return func(*args, **kwargs)
        if not any(one.device.type == NAME for one in tensors) and (
            target is None or torch.device(target).type != NAME
        ):
            return func(
                *args, **kwargs
            )  # large tensors of the host, and those on "meta": no work of the device
        return self._on_device(func, args, kwargs, tensors)

    def _is_large(self, func: Any, args: Any) -> bool:
        """Whether a factory makes a tensor that is better not real."""
        name = func._schema.name.partition("::")[2]
        if name in ("arange", "linspace", "randperm", "eye", "tril_indices", "triu_indices"):
            return False
        sizes = args[0] if args and isinstance(args[0], list | tuple) else ()
        elements = 1
        for size in sizes:
            elements *= int(size) if isinstance(size, int) else 1
        return elements > MOST_REAL

    # On the device.

    def _on_device(self, func: Any, args: Any, kwargs: Any, tensors: list[torch.Tensor]) -> Any:
        operator = self._known.get(func)
        if operator is None:
            operator = self._known[func] = _describe(func)
        self._phases.look()
        if operator.name in ("_local_scalar_dense", "equal", "is_nonzero"):
            return self._answer(operator.name, args)
        if operator.name == "_to_copy" and _is_host(kwargs.get("device")):
            return self._to_host(args[0], kwargs)
        if operator.name == "copy_" and args[0].device.type != NAME:
            return self._into_host(*args[:2])
        values = None if operator.is_random else self._values(operator, func, args, kwargs, tensors)
        if any(not isinstance(one, FakeTensor) for one in tensors):
            args, kwargs = tree_map(self._without_values, (args, kwargs))
        try:
            result = func(*args, **kwargs)
        except (DynamicOutputShapeException, DataDependentOutputException) as error:
            result = self._sized_by_values(func, args, kwargs, values, error)
        except (NotImplementedError, UnsupportedOperatorException) as error:
            text = f"PyTorch does not know the sizes of what {operator.name} gives without its device"
            raise RecordingError(f"{user_place()}: {text}") from error
        self._keep_values(operator, args, kwargs, values, result)
        if values is None and operator.name == "histc":
            bins = kwargs.get("bins", args[1] if len(args) > 1 else 100)
            set_value(result, self._experts.counts(args[0], bins, result.dtype))
        self._note(operator, args, kwargs, tensors, result)
        self._experts.notice(operator.name, args[0] if args else None, result)
        return result

    def _note(self, operator: Operator, args: Any, kwargs: Any, tensors: Any, result: Any) -> None:
        """The node, and the storages that it uses."""
        results = [one for one in tree_iter(result) if isinstance(one, torch.Tensor)]
        if operator.is_free:
            for one in results:
                if one.device.type == NAME:
                    self._storages.of(one)
            return
        written = [
            one
            for at, name in operator.written
            for one in tree_iter(args[at] if at < len(args) else kwargs.get(name))
            if isinstance(one, torch.Tensor)
        ]
        only_written = written if operator.name in _OVERWRITING else _tensors_of(kwargs, operator.outputs)
        reads = [one for one in tensors if one.device.type == NAME]
        reads = [one for one in reads if all(one is not other for other in only_written)]
        writes = written + [one for one in results if all(one is not other for other in tensors)]
        writes = [one for one in writes if one.device.type == NAME]
        if operator.name == "all_gather_copy_in":  # into the rank's part of what is gathered
            reads, writes = list(args[0]), [result[0]]
        self._collectives.implied_waits((*reads, *writes))
        node = self._tape.add(
            self._work(tensors, writes),
            operator.name,
            self._tape.current,
            **self._figures(operator, args, result, reads, writes),
        )
        self._storages.uses(node, reads, writes)
        if operator.is_fusible and node.work is Work.KERNEL:
            self._regions.notice(reads, writes)

    def _work(self, tensors: list[torch.Tensor], writes: list[torch.Tensor]) -> Work:
        """A copy from the host is one; all else is a kernel."""
        is_copy = len(tensors) <= 2 and any(one.device.type == "cpu" and one.dim() for one in tensors)
        return Work.COPY if is_copy and writes else Work.KERNEL

    def _figures(
        self,
        operator: Operator,
        args: Any,
        result: Any,
        reads: list[torch.Tensor],
        writes: list[torch.Tensor],
    ) -> dict[str, Any]:
        out = sum(one.numel() for one in writes)
        moved = size_of(writes)
        for at, one in enumerate(reads):
            whole = one.numel() * one.element_size()
            rows = out * one.element_size() if at == 0 and operator.name in _LOOKUPS else whole
            moved += min(rows, whole)
        elements = max([out, *(one.numel() for one in reads if operator.name not in _LOOKUPS)], default=0)
        cost = cost_of(operator.name, args, result)
        if cost is None:
            if operator.is_pointwise:
                cost = Cost(shapes.elementwise(elements, max(len(reads), 1)), elements)
            else:
                cost = Cost("", elements)
                self._tape.remark("without a shape", f"{operator.name}: an operation for each element")
        first = next((one for one in (*reads, *writes) if one.dtype.is_floating_point), None)
        dtype = DTYPES.get(first.dtype, "") if first is not None else ""
        return {"shape": cost.shape, "operations": cost.operations, "bytes": moved, "dtype": dtype}

    def _without_values(self, value: Any) -> Any:
        """A real tensor as a fake one of the host; PyTorch would take it for a constant and run kernels."""
        if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor):
            return value
        return self._fake.fake_tensor_converter.from_real_tensor(self._fake, value)

    # Values.

    def _values(self, operator: Operator, func: Any, args: Any, kwargs: Any, tensors: Any) -> Any:
        if operator.name.startswith(("empty", "new_empty")):
            return None
        if operator.name in _ASSIGNING and any(one is args[0] for one in tensors):
            return self._assigned(func, args, kwargs, tensors)
        for one in tensors:
            if isinstance(one, FakeTensor) and value_of(one) is None:
                return None
        sizes = args[0] if not tensors and args and isinstance(args[0], list | tuple) else ()
        elements = 1
        for size in sizes:
            elements *= size
        if elements > LARGEST or any(one.numel() > LARGEST for one in tensors):
            return None
        with unset_fake_temporarily():
            return real_call(func, args, kwargs, lambda one: isinstance(one, FakeTensor))

    def _assigned(self, func: Any, args: Any, kwargs: Any, tensors: Any) -> Any:
        """The values of a tensor all of which are written, whatever they were."""
        target = args[0]
        if value_of(target) is None and target.numel() <= LARGEST:
            set_value(target, None)  # what is known of its views is no longer true
            with unset_fake_temporarily():
                set_value(target, torch.empty(target.shape, dtype=target.dtype, device="cpu"))
        known = all(not isinstance(one, FakeTensor) or value_of(one) is not None for one in tensors)
        if not known or target.numel() > LARGEST:
            return None
        with unset_fake_temporarily():
            return real_call(func, args, kwargs, lambda one: isinstance(one, FakeTensor))

    def _keep_values(self, operator: Operator, args: Any, kwargs: Any, values: Any, result: Any) -> None:
        if values is None:
            for at, name in operator.written:
                for one in tree_iter(args[at] if at < len(args) else kwargs.get(name)):
                    if isinstance(one, FakeTensor):
                        set_value(one, None)
            return
        for made, value in zip(tree_iter(result), tree_iter(values), strict=False):
            if isinstance(made, FakeTensor) and isinstance(value, torch.Tensor) and value_of(made) is None:
                set_value(made, value)

    def _answer(self, name: str, args: Any) -> Any:
        """What the host asks of the device, and waits for."""
        self._tape.host_waits(self._tape.last(self._tape.current))
        place = user_place()
        self._tape.remark("synchronised", f"the host reads a value ({name.strip('_')})", place)
        values = [value_of(one) if isinstance(one, FakeTensor) else one for one in args]
        if any(one is None for one in values):
            answer: Any = True if name == "equal" else _nothing(args[0].dtype)
            self._tape.remark("assumed", f"{answer} for a value that nobody knows", place)
            return answer
        with unset_fake_temporarily():
            known = [one for one in values if one is not None]
            return torch.equal(*known) if name == "equal" else known[0].item()

    def _sized_by_values(self, func: Any, args: Any, kwargs: Any, values: Any, error: Exception) -> Any:
        """The result of an operator whose size follows from values."""
        place, name = user_place(), self._known[func].name
        self._tape.host_waits(self._tape.last(self._tape.current))
        self._tape.remark("synchronised", f"the size of a result is read ({name})", place)
        if values is None and name == "bincount":
            bins = kwargs.get("minlength", args[2] if len(args) > 2 else 0)
            values = self._experts.counts(args[0], bins, torch.int64) if bins else None
        if values is None and name == "index" and (indices := self._without_masks(args[1])) is not None:
            return func(args[0], indices)
        if values is None:
            raise RecordingError(
                f"{place}: the size of what {name} gives follows from values that nobody knows"
            ) from error
        return tree_map(lambda one: self._placed(one) if isinstance(one, torch.Tensor) else one, values)

    def _without_masks(self, indices: list[torch.Tensor | None]) -> list[torch.Tensor | None] | None:
        """Indices with the places that masks choose; None: nobody knows a mask."""
        found: list[torch.Tensor | None] = []
        for one in indices:
            if one is None or one.dtype not in (torch.bool, torch.uint8):
                found.append(one)
                continue
            mask = value_of(one)
            if mask is None:
                return None
            with unset_fake_temporarily():
                chosen = mask.nonzero(as_tuple=True)
            found.extend(self._placed(places) for places in chosen)
        return found

    def _placed(self, value: torch.Tensor) -> torch.Tensor:
        """A tensor of the device with these values."""
        made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=NAME)
        set_value(made, value)
        return made

    # To the host.

    def _to_host(self, tensor: torch.Tensor, kwargs: Any) -> torch.Tensor:
        value = self._fetch(tensor, wait=not kwargs.get("non_blocking", False))
        dtype = kwargs.get("dtype") or tensor.dtype
        if value is None:
            return torch.empty(tensor.shape, dtype=dtype, device="cpu")
        with unset_fake_temporarily():
            return value.to(dtype)

    def _into_host(self, target: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        value = self._fetch(source, wait=True)
        if value is not None and not isinstance(target, FakeTensor):
            with unset_fake_temporarily():
                target.copy_(value)
        return target

    def _fetch(self, tensor: torch.Tensor, *, wait: bool) -> torch.Tensor | None:
        """The values of a tensor; zeros if nobody knows them, None if they are too many."""
        node = self._tape.add(
            Work.COPY, "copy to the host", self._tape.current, operations=0, bytes=size_of([tensor])
        )
        self._storages.uses(node, [tensor], [])
        place = user_place()
        if wait:
            self._tape.host_waits(self._tape.last(self._tape.current))
            self._tape.remark("synchronised", "the host waits for a copy", place)
        value = value_of(tensor)
        if value is not None:
            with unset_fake_temporarily():
                return value.clone()
        if tensor.numel() > MOST_REAL:
            return None
        self._tape.remark("assumed", "zeros for values that nobody knows", place)
        with unset_fake_temporarily():
            return torch.zeros(tensor.shape, dtype=tensor.dtype)


_ASSIGNING = ("fill_", "zero_", "copy_")


def _fake_mode() -> Any:
    """The innermost mode of fake tensors."""
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)


def _nothing(dtype: torch.dtype) -> bool | int | float:
    """Zero, or False."""
    if dtype is torch.bool:
        return False
    return 0.0 if dtype.is_floating_point else 0


def _tensors_of(kwargs: Any, names: tuple[str, ...]) -> list[torch.Tensor]:
    return [one for name in names for one in tree_iter(kwargs.get(name)) if isinstance(one, torch.Tensor)]


def _is_host(device: Any) -> bool:
    return device is not None and torch.device(device).type == "cpu"


def _describe(func: Any) -> Operator:
    schema = func._schema
    name = schema.name.partition("::")[2]
    written = tuple(
        (at, one.name)
        for at, one in enumerate(schema.arguments)
        if one.alias_info is not None and one.alias_info.is_write
    )
    outputs = tuple(
        one.name for at, one in enumerate(schema.arguments) if one.kwarg_only and (at, one.name) in written
    )
    aliases = [one.alias_info for one in schema.returns]
    is_view = bool(aliases) and all(one is not None and not one.is_write for one in aliases)
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
    return Operator(
        name, is_free, torch.Tag.nondeterministic_seeded in tags, is_pointwise, is_fusible, written, outputs
    )


# Kernels that read and write their tensors once, and do about an operation for each element.
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
