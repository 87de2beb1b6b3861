"""Replacements for functions and classes of PyTorch that take devices or look for CUDA or NCCL outside of the
function mode.

They are permanent: the process belongs to the program.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_iter

from recorder.process.objects import object_to_tensor, tensor_to_object
from recorder.process.operators import RecordingError
from recorder.process.phases import TapePhases
from recorder.process.redirect import (
    INSIDE,
    Redirect,
    attention_of_modules,
    fake_device,
    here,
    reported_device,
    swap,
)
from recorder.process.streams import NAME, DeviceModule
from recorder.process.tape import Tape, user_place

BACKEND = "etsim"
# files of PyTorch that choose collectives by the backend, as programs do
_CHOOSING = ("distributed/nn/functional.py", "ddp_comm_hooks/ddp_zero_hook.py")


def patch(
    module: DeviceModule,
    tape: Tape,
    phases: TapePhases,
    mode: FakeTensorMode,
    pausing: Callable[[Callable[..., Any]], Callable[..., Any]],
) -> None:
    """Replace all functions that take devices or look for CUDA outside of PyTorch's function modes."""
    _patch_cuda(module)
    _patch_saving(tape)
    _patch_first_argument()
    _patch_distributed()
    _patch_backward(phases)
    _patch_modules(mode)
    _patch_optimizers()
    _patch_loaders(tape)
    _patch_nested()
    F.scaled_dot_product_attention = attention_of_modules
    from torch.distributed.tensor._sharding_prop import ShardingPropagator

    name = "_propagate_tensor_meta_non_cached"
    setattr(ShardingPropagator, name, pausing(getattr(ShardingPropagator, name)))


def _patch_cuda(module: DeviceModule) -> None:
    for name in dir(module):
        for place in (torch.cuda, torch.cuda.random, torch.cuda.memory):
            if not name.startswith("__") and hasattr(place, name):
                setattr(place, name, getattr(module, name))
    torch.Stream, torch.Event = module.Stream, module.Event
    torch.cuda.is_available = module.is_available
    torch.cuda.is_current_stream_capturing = _is_capturing
    torch._C._host_emptyCache = lambda: None
    torch.backends.cuda.is_built = lambda: True
    torch.Tensor.record_stream = lambda *_: None
    for name in ("current_stream", "set_stream", "synchronize", "empty_cache"):
        setattr(torch.accelerator, name, getattr(module, name))
    nvtx = torch.cuda.nvtx
    nvtx.range_push = nvtx.range_pop = nvtx.range_start = nvtx.range_end = nvtx.mark = lambda *_, **__: 0
    torch.Generator = _Generator
    torch.cuda.nccl.version = lambda: (2, 28, 0)
    torch.cuda.current_device = lambda: int(os.environ["LOCAL_RANK"])
    torch.accelerator.current_accelerator = lambda *_, **__: reported_device(
        torch.device(NAME), sys._getframe(1)
    )


def _is_capturing() -> bool:
    """Return False, but to batch normalisation over ranks, which then takes all ranks to have rows."""
    return sys._getframe(1).f_code.co_filename.endswith("_functions.py")


class _AnyGenerator(type(torch._C.Generator)):  # type: ignore[misc]
    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, torch._C.Generator)


class _Generator(torch._C.Generator, metaclass=_AnyGenerator):
    """A generator of the host, for any device: random numbers of the device have no values."""

    def __new__(cls, device: Any = "cpu") -> _Generator:  # noqa: ARG004
        return super().__new__(cls, "cpu")


def _patch_saving(tape: Tape) -> None:
    """Skip `torch.save`: there are no weights for a file."""
    save = torch.save

    @functools.wraps(save)
    def call(content: Any, *args: Any, **kwargs: Any) -> None:
        if any(isinstance(value, FakeTensor) for value in tree_iter(content)):
            tape.remark("changed", "torch.save writes no file", user_place())
        else:
            save(content, *args, **kwargs)

    torch.save = call
    _patch_checkpoints(tape)


def _patch_checkpoints(tape: Tape) -> None:
    """Skip distributed checkpoints: there are no weights to write, and those of a file stay unknown."""
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint import state_dict_loader, state_dict_saver

    def skipping(text: str) -> Callable[..., None]:
        def call(*_: Any, **__: Any) -> None:
            tape.remark("changed", text, user_place())

        return call

    for place in (checkpoint, state_dict_saver):
        place.save = skipping("checkpoint.save writes no files")
        place.async_save = _finished(skipping("checkpoint.async_save writes no files"))
    for place in (checkpoint, state_dict_loader):
        place.load = skipping("checkpoint.load reads no files")


def _finished(call: Callable[..., None]) -> Callable[..., Any]:
    """Return a function that calls another one and returns a finished future."""

    def future(*args: Any, **kwargs: Any) -> Any:
        from concurrent.futures import Future

        call(*args, **kwargs)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    return future


def _patch_nested() -> None:
    """Refuse nested tensors, whose sizes are values."""
    names = ("nested_tensor", "as_nested_tensor", "nested_tensor_from_jagged", "narrow")

    def refuse(*_: Any, **__: Any) -> None:
        raise RecordingError(
            f"{user_place()}: nested tensors are not recorded: pad the sequences, or join them in one tensor"
        )

    for name in names:
        setattr(torch.nested, name, refuse)


def _patch_first_argument() -> None:
    """Replace classes and functions that take a device, or its type, outside of the function mode."""
    from torch.distributed import device_mesh
    from torch.utils import _device

    def wrap(function: Callable[..., Any], at: int, *names: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            args = tuple(_type(arg) if place == at else arg for place, arg in enumerate(args))
            kwargs = {key: _type(arg) if key in names else arg for key, arg in kwargs.items()}
            return function(*args, **kwargs)

        return call

    torch.autocast.__init__ = wrap(torch.autocast.__init__, 1, "device_type")
    torch.amp.GradScaler.__init__ = wrap(torch.amp.GradScaler.__init__, 1, "device")
    _device.DeviceContext.__init__ = wrap(_device.DeviceContext.__init__, 1, "device")
    device_mesh.DeviceMesh.__init__ = wrap(device_mesh.DeviceMesh.__init__, 1, "device_type")
    device_mesh.init_device_mesh = wrap(device_mesh.init_device_mesh, 0, "device_type")
    dist.init_device_mesh = device_mesh.init_device_mesh
    for name in ("is_autocast_enabled", "get_autocast_dtype", "set_autocast_enabled", "set_autocast_dtype"):
        setattr(torch, name, wrap(getattr(torch, name), 0, "device_type"))

    class Autocast(torch.autocast):  # torch.cuda.amp.autocast has a signature of its own
        def __init__(
            self, enabled: bool = True, dtype: torch.dtype = torch.float16, cache_enabled: bool = True
        ) -> None:
            super().__init__(NAME, dtype, enabled, cache_enabled)

    def scaler(*args: Any, **kwargs: Any) -> torch.amp.GradScaler:
        return torch.amp.GradScaler(NAME, *args, **kwargs)

    torch.cuda.amp.autocast, torch.cuda.amp.GradScaler = Autocast, scaler


def _type(value: Any) -> Any:
    """Return a device, or the type of one."""
    result = here(value)
    return NAME if isinstance(result, str) and result == f"{NAME}:0" else result


def _share_ranks(mesh: Any) -> None:
    """Share one list of ranks between equal meshes: FSDP2 makes several meshes for every weight."""
    make: Any = mesh.__init__
    known: dict[tuple[int, ...], tuple[int, ...]] = {}

    def initialise(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        self._flatten_rank_map = known.setdefault(self._flatten_rank_map, self._flatten_rank_map)

    mesh.__init__ = functools.wraps(make)(initialise)


def _patch_distributed() -> None:
    from torch._C._distributed_c10d import FakeProcessGroup
    from torch.distributed import device_mesh, utils
    from torch.testing._internal.distributed.fake_pg import FakeStore

    def create(common: Any, options: Any) -> Any:
        return FakeProcessGroup._create_internal(common.group_rank, common.group_size, options)

    dist.Backend.register_backend(BACKEND, create, extended_api=True, devices=["cpu", NAME])
    begin, requested, backend_of = dist.init_process_group, dict[str, str](), dist.get_backend

    @functools.wraps(begin)
    def initialise(*args: Any, **kwargs: Any) -> None:
        requested[""] = str(kwargs.get("backend", args[0] if args else None) or "nccl")
        begin(
            backend=BACKEND,
            store=FakeStore(),
            rank=rank,
            world_size=int(os.environ["WORLD_SIZE"]),
            timeout=kwargs.get("timeout"),
        )

    make, rank = dist.distributed_c10d.new_group, int(os.environ["RANK"])

    @functools.wraps(make)
    def group(ranks: Any = None, timeout: Any = None, backend: Any = None, *args: Any, **kwargs: Any) -> Any:  # noqa: ARG001
        if ranks is not None and rank not in ranks:  # a mesh of many ranks requests thousands of groups
            return dist.GroupMember.NON_GROUP_MEMBER
        kwargs.pop("pg_options", None)
        kwargs.pop("device_id", None)
        made = make(ranks, timeout, BACKEND, **kwargs)
        requested[made.group_name] = str(backend or requested.get("", "nccl"))
        return made

    @functools.wraps(backend_of)
    def named(group: Any = None) -> str:
        """Return the backend that the program requested; of several, the one for CUDA."""
        caller = sys._getframe(1).f_code.co_filename
        if caller.startswith(INSIDE) and not caller.endswith(_CHOOSING):
            return backend_of(group)
        wanted = requested.get(group.group_name if group is not None else "", requested.get("", "nccl"))
        return wanted.partition("cuda:")[2].partition(",")[0] or wanted

    device_mesh.new_group = group
    _share_ranks(device_mesh.DeviceMesh)
    copied = utils._recursive_to
    utils._recursive_to = lambda inputs, device, *more: copied(inputs, here(device), *more)
    for place in (dist, dist.distributed_c10d):
        place.init_process_group, place.new_group = initialise, group
        place.is_nccl_available = lambda: True
        place.get_backend = named
    dist.distributed_c10d._object_to_tensor = object_to_tensor
    dist.distributed_c10d._tensor_to_object = tensor_to_object


def _patch_backward(phases: TapePhases) -> None:
    """Replace `Tensor.backward`, a function of PyTorch itself, during which function modes are off."""
    from torch.autograd import graph
    from torch.utils import checkpoint

    run = graph._engine_run_backward

    def backward(*args: Any, **kwargs: Any) -> Any:
        with Redirect(), phases.backward():
            return run(*args, **kwargs)

    for place in (graph, torch.autograd, checkpoint):
        if hasattr(place, "_engine_run_backward"):
            place._engine_run_backward = backward


def _patch_modules(mode: FakeTensorMode) -> None:
    """Make weights fake from the start, and move them to the device although they have weak references."""
    make = torch.nn.Parameter.__new__

    def parameter(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
        if type(data) is torch.Tensor and data.device.type == "cpu":
            with torch.no_grad():
                data = mode.fake_tensor_converter.from_real_tensor(mode, data)
        return make(cls, data, requires_grad)

    torch.nn.Parameter.__new__ = staticmethod(parameter)
    device = vars(FakeTensor)["device"]
    FakeTensor.device = device.getter(fake_device)
    torch.utils.swap_tensors = swap


def _patch_optimizers() -> None:
    """Register fake tensors as weights: libraries check the exact type before they use multi-tensor
    kernels.
    """
    from torch.optim import optimizer
    from torch.utils import _foreach_utils

    for place in (optimizer, _foreach_utils):
        known = getattr(place, "_foreach_supported_types", None)
        if known is not None and FakeTensor not in known:
            known.append(FakeTensor)
    # In C++ a fake tensor is on another device than in Python, and differs from its wrappers.
    torch._C._group_tensors_by_device_and_dtype = _grouped


def _grouped(lists: list[list[Any]], with_indices: bool = False) -> dict[Any, Any]:
    """Return lists of tensors, grouped by device and dtype of the first list's."""
    results: dict[Any, tuple[list[list[Any]], list[int]]] = {}
    for at, first in enumerate(lists[0]):
        if first is None:
            continue
        parts, indices = results.setdefault((first.device, first.dtype), ([[] for _ in lists], []))
        for part, tensors in zip(parts, lists, strict=True):
            if tensors:
                part.append(tensors[at])
        if with_indices:
            indices.append(at)
    return results


def _patch_loaders(tape: Tape) -> None:
    """Run loaders without workers: those would be processes that hand over unknown tensors."""
    from torch.utils.data import DataLoader

    begin = DataLoader.__init__

    @functools.wraps(begin)
    def loader(self: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("num_workers"):
            tape.remark("changed", "DataLoader runs without workers")
            kwargs["num_workers"] = 0
            for key in ("prefetch_factor", "persistent_workers", "multiprocessing_context", "worker_init_fn"):
                kwargs.pop(key, None)
        begin(self, *args, **kwargs)

    DataLoader.__init__ = loader
