"""The dispatch mode: each operator on the device becomes a node, and is computed on shapes alone.

Operators on small tensors of the host run normally, so that loaders and configuration work.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
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
from recorder.process.communication import RankCommunication
from recorder.process.costs import DTYPES, Cost, cost_of, size_of
from recorder.process.experts import CHOICES, ExpertCounts
from recorder.process.objects import PeerNeeded
from recorder.process.phases import TapePhases
from recorder.process.regions import Regions
from recorder.process.schemas import OVERWRITING, Operator, describe
from recorder.process.sizes import SIZES
from recorder.process.storages import Storages
from recorder.process.streams import NAME
from recorder.process.tape import Tape, user_place
from recorder.process.values import is_small, largest, real_call, set_value, value_of
from recorder.recorded import RecordedKind

MOST_REAL = 1 << 20  # largest real tensor of the host, in elements
_PLAIN = (torch.Tensor, torch.nn.Parameter, FakeTensor, torch.nn.Buffer)
_SPARSE = {"embedding": 4, "_embedding_bag": 5}  # place of the argument `sparse`
_FILLS = frozenset(("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"))
# of the first argument, only the chosen rows are read
_LOOKUPS = frozenset(("embedding", "index_select", "gather", "index", "_unsafe_index", "take_along_dim"))


class RecordingError(RuntimeError):
    """An action of the program that cannot be recorded."""


class RecordingMode(TorchDispatchMode):
    """The recording mode of one rank."""

    def __init__(
        self,
        fake: FakeTensorMode,
        tape: Tape,
        storages: Storages,
        phases: TapePhases,
        collectives: RankCommunication,
        experts: ExpertCounts,
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
        """Return a function whose operators are not recorded: DTensor runs some on whole tensors for their
        shapes.
        """

        def call(*args: Any, **kwargs: Any) -> Any:
            before, self._is_paused = self._is_paused, True
            try:
                return function(*args, **kwargs)
            finally:
                self._is_paused = before

        return call

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(type_ not in _PLAIN for type_ in types):
            return NotImplemented  # a DTensor unfolds first, and its local operators come back
        if self._is_paused or _fake_mode() is not self._fake:
            return func(*args, **(kwargs or {}))
        try:
            with self._lock:  # fake tensors are not made for several threads at once
                return self._dispatch(func, args, kwargs or {})
        except (_StopRecomputationError, PeerNeeded):
            raise
        except BaseException:
            # an exception that leaves through C++ inside backward() may end the process without a message
            if torch._C._current_autograd_node() is not None:
                traceback.print_exc()
                sys.stderr.flush()
            raise

    def _dispatch(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func.namespace in ("c10d", "_c10d_functional", "_dtensor") and self._collectives.is_communication(
            func
        ):
            self._phases.look()
            return self._collectives.call(func, args, kwargs)
        if (
            func.namespace == "aten" and torch.is_inference_mode_enabled() and func._can_decompose()
        ):  # autograd would decompose it
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if func is torch.ops.aten.is_pinned.default:  # DDP checks its allocation
            return True
        if kwargs.get("pin_memory"):
            kwargs = {**kwargs, "pin_memory": False}
        tensors = [value for value in tree_iter((args, kwargs)) if isinstance(value, torch.Tensor)]
        target = kwargs.get("device")
        if not any(isinstance(tensor, FakeTensor) for tensor in tensors):
            on_host = target is None or torch.device(target).type == "cpu"
            if on_host and (tensors or not self._is_large(func, args)):
                with unset_fake_temporarily():
                    return func(*args, **kwargs)
        if not any(tensor.device.type == NAME for tensor in tensors) and (
            target is None or torch.device(target).type != NAME
        ):
            return func(
                *args, **kwargs
            )  # large tensors of the host, and those on "meta": no work of the device
        return self._on_device(func, args, kwargs, tensors)

    def _is_large(self, func: Any, args: Any) -> bool:
        """Return whether a factory makes a tensor too large to be real."""
        name = func._schema.name.partition("::")[2]
        if name in ("arange", "linspace", "randperm", "eye", "tril_indices", "triu_indices"):
            return False
        sizes = args[0] if args and isinstance(args[0], list | tuple) else ()
        elements = 1
        for size in sizes:
            elements *= int(size) if isinstance(size, int) else 1
        return elements > MOST_REAL

    def _on_device(self, func: Any, args: Any, kwargs: Any, tensors: list[torch.Tensor]) -> Any:
        operator = self._known.get(func)
        if operator is None:
            operator = self._known[func] = describe(func)
        self._phases.look()
        if operator.name in ("_local_scalar_dense", "equal", "is_nonzero"):
            return self._answer(operator.name, args)
        if operator.name == "_to_copy" and _is_host(kwargs.get("device")):
            return self._to_host(args[0], kwargs)
        if operator.name == "copy_" and args[0].device.type != NAME:
            return self._into_host(*args[:2])
        if operator.name in _SPARSE and len(args) > (at := _SPARSE[operator.name]) and args[at]:
            raise RecordingError(
                f"{user_place()}: sparse gradients are not recorded: leave out sparse=True for dense ones"
            )
        values = None if operator.is_random else self._values(operator, func, args, kwargs, tensors)
        if any(not isinstance(tensor, FakeTensor) for tensor in tensors):
            args, kwargs = tree_map(self._without_values, (args, kwargs))
        sized = SIZES.get(operator.name)
        try:
            result = func(*args, **kwargs) if sized is None else self._without_nodes(sized, args, kwargs)
        except (DynamicOutputShapeException, DataDependentOutputException) as error:
            result = self._sized_by_values(func, args, kwargs, values, error)
        except (NotImplementedError, UnsupportedOperatorException) as error:
            text = f"PyTorch cannot infer the sizes of the results of {operator.name} without its device"
            raise RecordingError(f"{user_place()}: {text}") from error
        self._keep_values(operator, args, kwargs, values, result)
        if values is None and operator.name in CHOICES:
            at = CHOICES[operator.name]
            self._experts.choose(args[0], result, kwargs.get("dim", args[at] if len(args) > at else -1))
        if values is None and operator.name == "histc":
            bins = kwargs.get("bins", args[1] if len(args) > 1 else 100)
            set_value(result, self._experts.counts(args[0], bins, result.dtype))
        self._note(operator, args, kwargs, tensors, result)
        return result

    def _without_nodes(self, sized: Any, args: Any, kwargs: Any) -> Any:
        """Return results of the inferred sizes; making them is no work of the device."""
        return self.pausing(sized)(*args, **kwargs)

    def _note(self, operator: Operator, args: Any, kwargs: Any, tensors: Any, result: Any) -> None:
        """Add the node, and the storages that it uses."""
        results = [value for value in tree_iter(result) if isinstance(value, torch.Tensor)]
        launches = not results or any(tensor.numel() for tensor in results)
        if operator.is_free or not launches:
            for tensor in results:
                if tensor.device.type == NAME:
                    self._storages.of(tensor)
            return
        written = [
            value
            for at, name in operator.written
            for value in tree_iter(args[at] if at < len(args) else kwargs.get(name))
            if isinstance(value, torch.Tensor)
        ]
        only_written = written if operator.name in OVERWRITING else _tensors_of(kwargs, operator.outputs)
        reads = [tensor for tensor in tensors if tensor.device.type == NAME]
        reads = [read for read in reads if all(read is not other for other in only_written)]
        writes = written + [tensor for tensor in results if all(tensor is not other for other in tensors)]
        writes = [write for write in writes if write.device.type == NAME]
        if operator.name == "all_gather_copy_in":  # into the rank's part of the gathered tensor
            reads, writes = list(args[0]), [result[0]]
        self._collectives.implied_waits((*reads, *writes))
        node = self._tape.add(
            self._work(tensors, writes),
            operator.name,
            self._tape.current,
            **self._figures(operator, args, kwargs, result, reads, writes),
        )
        self._storages.uses(node, reads, writes)
        if operator.is_fusible and node.work is RecordedKind.KERNEL:
            self._regions.notice(reads, writes)

    def _work(self, tensors: list[torch.Tensor], writes: list[torch.Tensor]) -> RecordedKind:
        """Return the kind of work: a copy from the host is one, all else is a kernel."""
        is_copy = len(tensors) <= 2 and any(
            tensor.device.type == "cpu" and tensor.dim() for tensor in tensors
        )
        return RecordedKind.COPY if is_copy and writes else RecordedKind.KERNEL

    def _figures(
        self,
        operator: Operator,
        args: Any,
        kwargs: Any,
        result: Any,
        reads: list[torch.Tensor],
        writes: list[torch.Tensor],
    ) -> dict[str, Any]:
        out = sum(write.numel() for write in writes)
        moved = size_of(writes)
        for at, tensor in enumerate(reads):
            whole = tensor.numel() * tensor.element_size()
            rows = out * tensor.element_size() if at == 0 and operator.name in _LOOKUPS else whole
            moved += min(rows, whole)
        elements = max([out, *(read.numel() for read in reads if operator.name not in _LOOKUPS)], default=0)
        cost = cost_of(operator.name, args, result)
        if cost is None and operator.formula is not None:
            cost = Cost("", int(operator.formula(*args, **kwargs, out_val=result)))
        elif cost is None:
            if operator.is_pointwise:
                cost = Cost(shapes.elementwise(elements, max(len(reads), 1)), elements)
            else:
                cost = Cost("", elements)
                self._tape.remark("without a shape", f"{operator.name}: an operation for each element")
        if "0" in cost.shape.split():  # of nothing: zeros are written
            cost = Cost(shapes.elementwise(max(out, 1), 1), out)
        first = next((tensor for tensor in (*reads, *writes) if tensor.dtype.is_floating_point), None)
        dtype = DTYPES.get(first.dtype, "") if first is not None else ""
        return {"shape": cost.shape, "operations": cost.operations, "bytes": moved, "dtype": dtype}

    def _without_values(self, value: Any) -> Any:
        """Return a real tensor as a fake one of the host; PyTorch would take it as a constant and run
        kernels.
        """
        if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor):
            return value
        made = self._fake.fake_tensor_converter.from_real_tensor(self._fake, value)
        set_value(made, value)
        return made

    # Values.

    def _values(self, operator: Operator, func: Any, args: Any, kwargs: Any, tensors: Any) -> Any:
        if operator.name.startswith(("empty", "new_empty")):
            return None
        if operator.name in OVERWRITING and isinstance(args[0], FakeTensor):
            self._make_known(args[0])
        if operator.name in _FILLS and not isinstance(args[0], torch.nn.Parameter):
            return self._filled(func, args, kwargs)
        for tensor in tensors:
            if isinstance(tensor, FakeTensor) and value_of(tensor) is None:
                return None
        sizes = args[0] if not tensors and args and isinstance(args[0], list | tuple) else ()
        elements = 1
        for size in sizes:
            elements *= size
        if elements > largest(kwargs.get("dtype")) or not all(map(is_small, tensors)):
            return None
        with unset_fake_temporarily():
            return real_call(func, args, kwargs, lambda arg: isinstance(arg, FakeTensor))

    def _filled(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Return the values of a new tensor of one number, independent of those of the first argument."""
        if not is_small(args[0]):
            return None
        with unset_fake_temporarily():
            like = torch.empty(args[0].shape, dtype=args[0].dtype, device="cpu")
            return real_call(func, (like, *args[1:]), kwargs, lambda arg: isinstance(arg, FakeTensor))

    def _make_known(self, tensor: FakeTensor) -> None:
        """Give known values to a tensor that is about to be overwritten entirely."""
        if value_of(tensor) is None and is_small(tensor):
            set_value(tensor, None)  # the known values of its views are obsolete, too
            with unset_fake_temporarily():
                set_value(tensor, torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu"))

    def _keep_values(self, operator: Operator, args: Any, kwargs: Any, values: Any, result: Any) -> None:
        if values is None:
            for at, name in operator.written:
                for tensor in tree_iter(args[at] if at < len(args) else kwargs.get(name)):
                    if isinstance(tensor, FakeTensor):
                        set_value(tensor, None)
            return
        for made, value in zip(tree_iter(result), tree_iter(values), strict=False):
            if isinstance(made, FakeTensor) and isinstance(value, torch.Tensor) and value_of(made) is None:
                set_value(made, value)

    def _answer(self, name: str, args: Any) -> Any:
        """Return a value that the host reads from the device, with the wait."""
        self._tape.host_waits(self._tape.last(self._tape.current))
        place = user_place()
        self._tape.remark("synchronised", f"the host reads a value ({name.strip('_')})", place)
        values = [value_of(arg) if isinstance(arg, FakeTensor) else arg for arg in args]
        if any(value is None for value in values):
            answer: Any = True if name == "equal" else _nothing(args[0].dtype)
            self._tape.remark("assumed", f"{answer} for an unknown value", place)
            return answer
        with unset_fake_temporarily():
            known = [value for value in values if value is not None]
            return torch.equal(*known) if name == "equal" else known[0].item()

    def _sized_by_values(self, func: Any, args: Any, kwargs: Any, values: Any, error: Exception) -> Any:
        """Return the result of an operator whose size follows from values."""
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
                f"{place}: the size of the result of {name} depends on unknown values: give it a fixed size, "
                "as torch.where does, or values that follow from shapes"
            ) from error
        return tree_map(
            lambda tensor: self._placed(tensor) if isinstance(tensor, torch.Tensor) else tensor, values
        )

    def _without_masks(self, indices: list[torch.Tensor | None]) -> list[torch.Tensor | None] | None:
        """Return the indices with masks replaced by positions; None if a mask is unknown."""
        placed: list[torch.Tensor | None] = []
        for index in indices:
            if index is None or index.dtype not in (torch.bool, torch.uint8):
                placed.append(index)
                continue
            mask = value_of(index)
            if mask is None:
                return None
            with unset_fake_temporarily():
                chosen = mask.nonzero(as_tuple=True)
            placed.extend(self._placed(places) for places in chosen)
        return placed

    def _placed(self, value: torch.Tensor) -> torch.Tensor:
        """Return a tensor of the device with these values."""
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
        """Return the values of a tensor; zeros if they are unknown, None if they are too many."""
        node = self._tape.add(
            RecordedKind.COPY, "copy to the host", self._tape.current, operations=0, bytes=size_of([tensor])
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
        self._tape.remark("assumed", "zeros for unknown values", place)
        with unset_fake_temporarily():
            return torch.zeros(tensor.shape, dtype=tensor.dtype)


def _fake_mode() -> Any:
    """Return the innermost mode of fake tensors."""
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)


def _nothing(dtype: torch.dtype) -> bool | int | float:
    """Return zero, or False."""
    if dtype is torch.bool:
        return False
    return 0.0 if dtype.is_floating_point else 0


def _tensors_of(kwargs: Any, names: tuple[str, ...]) -> list[torch.Tensor]:
    return [
        value for name in names for value in tree_iter(kwargs.get(name)) if isinstance(value, torch.Tensor)
    ]


def _is_host(device: Any) -> bool:
    return device is not None and torch.device(device).type == "cpu"
