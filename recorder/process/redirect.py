"""What a program says of "cuda" and "nccl", said of the device and the group that are here.

A function mode rewrites the devices of calls; what takes devices outside of it is patched, for good: the
process is the program's. Not here: the device (`device`), operators (`operators`).
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
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_iter, tree_map_only

from recorder.process.objects import object_to_tensor, tensor_to_object
from recorder.process.phases import Phases
from recorder.process.places import user_place
from recorder.process.streams import NAME, DeviceModule
from recorder.process.tape import Tape

BACKEND = "etsim"
_CUDA = "cuda"
_INSIDE = (str(Path(torch.__file__).parent), str(Path(__file__).parent))  # files that are no program's


def here(value: Any) -> Any:
    """A device of CUDA as the one that is here; anything else as it is."""
    if isinstance(value, torch.device):
        return torch.device(NAME, 0) if value.type in (_CUDA, NAME) else value
    if isinstance(value, str) and value.partition(":")[0] in (_CUDA, NAME):
        return f"{NAME}:0"  # whatever LOCAL_RANK is: the device guard knows of one device
    return value


class Redirect(TorchFunctionMode):
    """Devices in the arguments of PyTorch's functions."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        special = _SPECIAL.get(func)
        if special is not None:
            return special(*args, **kwargs)
        if args:
            args = tuple(here(one) if isinstance(one, str | torch.device) else one for one in args)
        if "device" in kwargs:
            device = kwargs["device"]
            kwargs = {**kwargs, "device": torch.device(NAME, 0) if isinstance(device, int) else here(device)}
        return func(*args, **kwargs)


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
    """The kernel that CUDA would choose; PyTorch takes attention apart on other devices."""
    plain = functools.partial(F.scaled_dot_product_attention, dropout_p=dropout_p, is_causal=is_causal)
    if query.device.type != NAME or query.dim() != 4:
        return plain(query, key, value, attn_mask=attn_mask, scale=scale, enable_gqa=enable_gqa)
    if torch.is_autocast_enabled(NAME):
        wanted = torch.get_autocast_dtype(NAME)
        query, key, value = (one.to(wanted) for one in (query, key, value))
    if attn_mask is None and query.dtype in (torch.float16, torch.bfloat16):
        flash = torch.ops.aten._scaled_dot_product_flash_attention
        found = flash(query, key, value, dropout_p, is_causal, scale=scale)
        return found[0]
    if enable_gqa and key.shape[1] != query.shape[1]:
        times = query.shape[1] // key.shape[1]
        key, value = (one.repeat_interleave(times, 1) for one in (key, value))
    if attn_mask is not None and attn_mask.dtype is torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill_(~attn_mask, float("-inf"))
    if attn_mask is not None:
        sizes = (query.shape[0], query.shape[1], query.shape[2], key.shape[2])
        attn_mask = attn_mask.to(query.dtype).expand(sizes)
    efficient = torch.ops.aten._scaled_dot_product_efficient_attention
    log_sum = query.requires_grad or key.requires_grad or value.requires_grad
    found = efficient(query, key, value, attn_mask, log_sum, dropout_p, is_causal, scale=scale)
    return found[0]


def _type_name(tensor: torch.Tensor, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
    """`tensor.type()` names the class of a tensor on CUDA."""
    if dtype is None and tensor.device.type == NAME:
        return tensor.type().replace(f"torch.{NAME}.", "torch.cuda.")
    if isinstance(dtype, str) and dtype.startswith("torch.cuda."):
        return tensor.to(torch.device(NAME, 0), getattr(torch, dtype.rpartition(".")[2]).dtype)
    return tensor.type(dtype, *args, **kwargs)


def _fake_device(tensor: FakeTensor) -> torch.device:
    """As fake tensors have it, but for each thread: within a kernel of their own they are on "meta"."""
    if torch._C._meta_in_tls_dispatch_include():
        return torch.device("meta")
    return _told(tensor.fake_device, sys._getframe(1))


def _told(device: torch.device, caller: FrameType) -> torch.device:
    """Programs compare devices with "cuda"; PyTorch itself, with the one that is here."""
    if device.type != NAME or caller.f_code.co_filename.startswith(_INSIDE):
        return device
    return torch.device(_CUDA, int(os.environ["LOCAL_RANK"]))


def _format(tensor: torch.Tensor, how: str) -> str:
    if tensor.dim() == 0 and isinstance(tensor, FakeTensor):
        return format(tensor.item(), how)
    return torch.Tensor.__format__(tensor, how)


def _tensor(data: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
    """A list of scalars on the device is read by the host, past all modes."""
    if isinstance(data, list | tuple):
        data = tree_map_only(FakeTensor, lambda one: one.item() if one.dim() == 0 else one, data)
    return torch.tensor(data, *args, **kwargs | {"device": here(kwargs.get("device"))})


def _set_data(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """PyTorch refuses to move data between the host and a device of this kind."""
    if tensor.device == value.device:
        torch.Tensor.data.__set__(tensor, value)
        return
    moved = value.detach()
    if isinstance(tensor, torch.nn.Parameter):
        moved = torch.nn.Parameter(moved, requires_grad=tensor.requires_grad)
    _swap(tensor, moved)


def _address(tensor: torch.Tensor) -> int:
    """Fake memory has none; programs tell tensors apart by it, so it is another for every storage."""
    if not isinstance(tensor, FakeTensor):
        return tensor.data_ptr()
    return (tensor.untyped_storage()._cdata << 16) + tensor.storage_offset() * tensor.element_size()


_SPECIAL: dict[Any, Callable[..., Any]] = {
    torch.device: torch.device,  # stays "cuda", as programs compare it with; it is rewritten where it is used
    torch.Tensor.cuda: _to_device,
    torch.Tensor.device.__get__: lambda tensor: _told(tensor.device, sys._getframe(2)),
    torch.Tensor.__format__: _format,
    torch.tensor: _tensor,
    torch.Tensor.type: _type_name,
    torch.Tensor.data_ptr: _address,
    torch.Tensor.data.__set__: _set_data,
    torch.Tensor.is_cuda.__get__: lambda tensor: tensor.device.type in (NAME, _CUDA),
    torch.Tensor.pin_memory: lambda tensor, *_, **__: tensor,
    torch.Tensor.is_pinned: lambda *_, **__: True,
    F.scaled_dot_product_attention: _attention,
}


# Patches.


def patch(
    module: DeviceModule,
    tape: Tape,
    phases: Phases,
    mode: FakeTensorMode,
    pausing: Callable[[Callable[..., Any]], Callable[..., Any]],
) -> None:
    """Everything that takes devices, or looks for CUDA, outside of functions of PyTorch."""
    _patch_cuda(module)
    _patch_saving(tape)
    _patch_first_argument()
    _patch_distributed()
    _patch_backward(phases)
    _patch_modules(mode)
    _patch_optimizers()
    _patch_loaders(tape)
    from torch.distributed.tensor._sharding_prop import ShardingPropagator

    name = "_propagate_tensor_meta_non_cached"
    setattr(ShardingPropagator, name, pausing(getattr(ShardingPropagator, name)))


def _patch_cuda(module: DeviceModule) -> None:
    for name in dir(module):
        for place in (torch.cuda, torch.cuda.random):
            if not name.startswith("__") and hasattr(place, name):
                setattr(place, name, getattr(module, name))
    torch.cuda.is_available = module.is_available
    torch.backends.cuda.is_built = lambda: True
    torch.Tensor.record_stream = lambda *_: None
    for name in ("current_stream", "set_stream", "synchronize", "empty_cache"):
        setattr(torch.accelerator, name, getattr(module, name))
    nvtx, memory = torch.cuda.nvtx, torch.cuda.memory
    nvtx.range_push = nvtx.range_pop = nvtx.range_start = nvtx.range_end = nvtx.mark = lambda *_, **__: 0
    memory._record_memory_history = memory._dump_snapshot = lambda *_, **__: None
    torch.cuda.memory_summary = memory.memory_summary = lambda *_, **__: ""
    torch.cuda.set_per_process_memory_fraction = lambda *_, **__: None
    torch.cuda.can_device_access_peer = lambda *_: True
    torch.Generator = _Generator
    torch.cuda.nccl.version = lambda: (2, 28, 0)
    torch.cuda.current_device = lambda: int(os.environ["LOCAL_RANK"])
    torch.accelerator.current_accelerator = lambda *_, **__: _told(torch.device(NAME), sys._getframe(1))


class _AnyGenerator(type(torch._C.Generator)):  # type: ignore[misc]
    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, torch._C.Generator)


class _Generator(torch._C.Generator, metaclass=_AnyGenerator):
    """Of the host, whichever device it is for: random numbers of the device are of no value."""

    def __new__(cls, device: Any = "cpu") -> _Generator:  # noqa: ARG004
        return super().__new__(cls, "cpu")


def _patch_saving(tape: Tape) -> None:
    """There are no weights that a file could hold."""
    save = torch.save

    @functools.wraps(save)
    def call(content: Any, *args: Any, **kwargs: Any) -> None:
        if any(isinstance(one, FakeTensor) for one in tree_iter(content)):
            tape.remark("changed", "torch.save writes no file", user_place())
        else:
            save(content, *args, **kwargs)

    torch.save = call


def _patch_first_argument() -> None:
    """Classes and functions that take a device, or its type, outside of the function mode."""
    from torch.distributed import device_mesh
    from torch.utils import _device

    def wrap(function: Callable[..., Any], at: int, *names: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            args = tuple(_type(one) if place == at else one for place, one in enumerate(args))
            kwargs = {key: _type(one) if key in names else one for key, one in kwargs.items()}
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
    """A device, or the type of one."""
    found = here(value)
    return NAME if isinstance(found, str) and found == f"{NAME}:0" else found


def _share_ranks(mesh: Any) -> None:
    """One list of ranks for all meshes of them: FSDP2 makes several meshes for every weight."""
    make: Any = mesh.__init__
    known: dict[tuple[int, ...], tuple[int, ...]] = {}

    def initialise(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        self._flatten_rank_map = known.setdefault(self._flatten_rank_map, self._flatten_rank_map)

    mesh.__init__ = functools.wraps(make)(initialise)


def _patch_distributed() -> None:
    from torch._C._distributed_c10d import FakeProcessGroup
    from torch.distributed import device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    def create(common: Any, options: Any) -> Any:
        return FakeProcessGroup._create_internal(common.group_rank, common.group_size, options)

    dist.Backend.register_backend(BACKEND, create, extended_api=True, devices=["cpu", NAME])
    begin, asked, backend_of = dist.init_process_group, dict[str, str](), dist.get_backend

    @functools.wraps(begin)
    def initialise(*args: Any, **kwargs: Any) -> None:
        asked[""] = str(kwargs.get("backend", args[0] if args else None) or "nccl")
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
        if ranks is not None and rank not in ranks:  # a mesh of many ranks asks for thousands of groups
            return dist.GroupMember.NON_GROUP_MEMBER
        kwargs.pop("pg_options", None)
        kwargs.pop("device_id", None)
        made = make(ranks, timeout, BACKEND, **kwargs)
        asked[made.group_name] = str(backend or asked.get("", "nccl"))
        return made

    @functools.wraps(backend_of)
    def named(group: Any = None) -> str:
        """What the program asked for; of several, the one for CUDA."""
        if sys._getframe(1).f_code.co_filename.startswith(_INSIDE):
            return backend_of(group)
        wanted = asked.get(group.group_name if group is not None else "", asked.get("", "nccl"))
        return wanted.partition("cuda:")[2].partition(",")[0] or wanted

    device_mesh.new_group = group
    _share_ranks(device_mesh.DeviceMesh)
    for place in (dist, dist.distributed_c10d):
        place.init_process_group, place.new_group = initialise, group
        place.is_nccl_available = lambda: True
        place.get_backend = named
    dist.distributed_c10d._object_to_tensor = object_to_tensor
    dist.distributed_c10d._tensor_to_object = tensor_to_object


def _patch_backward(phases: Phases) -> None:
    """`Tensor.backward` is a function of PyTorch itself, during which function modes are off."""
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
    """Weights are fake from the start, and are moved to the device although others refer to them weakly."""
    make = torch.nn.Parameter.__new__

    def parameter(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
        if type(data) is torch.Tensor and data.device.type == "cpu":
            with torch.no_grad():
                data = mode.fake_tensor_converter.from_real_tensor(mode, data)
        return make(cls, data, requires_grad)

    torch.nn.Parameter.__new__ = staticmethod(parameter)
    device = vars(FakeTensor)["device"]
    FakeTensor.device = device.getter(_fake_device)
    torch.utils.swap_tensors = _swap


def _swap(first: torch.Tensor, second: torch.Tensor) -> None:
    """As `torch.utils.swap_tensors`, which refuses tensors with weak references, as all fake ones are."""
    if first.device == second.device and first.dtype == second.dtype:
        return
    slots = copyreg._slotnames(type(first))  # type: ignore[attr-defined]
    for name in ("__class__", "__dict__", *slots):
        one, other = getattr(first, name, None), getattr(second, name, None)
        setattr(first, name, other)
        setattr(second, name, one)
    torch._C._swap_tensor_impl(first, second)


def _patch_optimizers() -> None:
    """Libraries ask for the exact type of weights before they take the kernels for many tensors."""
    from torch.optim import optimizer
    from torch.utils import _foreach_utils

    for place in (optimizer, _foreach_utils):
        known = getattr(place, "_foreach_supported_types", None)
        if known is not None and FakeTensor not in known:
            known.append(FakeTensor)
    # In C++ a fake tensor is on another device than in Python, and differs from what wraps one.
    torch._C._group_tensors_by_device_and_dtype = _grouped


def _grouped(lists: list[list[Any]], with_indices: bool = False) -> dict[Any, Any]:
    """Lists of tensors, taken apart by device and dtype of the first list's."""
    found: dict[Any, tuple[list[list[Any]], list[int]]] = {}
    for at, first in enumerate(lists[0]):
        if first is None:
            continue
        parts, indices = found.setdefault((first.device, first.dtype), ([[] for _ in lists], []))
        for part, one in zip(parts, lists, strict=True):
            if one:
                part.append(one[at])
        if with_indices:
            indices.append(at)
    return found


def _patch_loaders(tape: Tape) -> None:
    """Workers of loaders would be processes that hand over tensors nobody has."""
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
