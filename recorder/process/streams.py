"""Streams, events and the other members of a device module, as in `torch.cuda`, on the tape.

PyTorch takes streams from the module that is registered for a device, so FSDP, DTensor and checkpointing use
these. Events have no times: they only hold the work before them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from recorder.process.tape import COMPUTE, HOST, Tape

NAME = "rec"
MEMORY = 80 << 30  # reported bytes of the device; an assumption that programs rarely query


class WorkStream:
    """A queue of work."""

    def __init__(self, tape: Tape, number: int) -> None:
        self._tape, self.number = tape, number
        self.device_type, self.device_index, self.stream_id = 20, 0, number
        self.cuda_stream = self.native_handle = number

    @property
    def device(self) -> torch.device:
        return torch.device(NAME, 0)

    def wait_stream(self, other: WorkStream) -> None:
        self._tape.wait(self.number, self._tape.last(other.number))

    def wait_event(self, event: StreamEvent) -> None:
        self._tape.wait(self.number, event.nodes)

    def record_event(self, event: StreamEvent | None = None) -> StreamEvent:
        result = event if event is not None else StreamEvent(self._tape)
        result.record(self)
        return result

    def synchronize(self) -> None:
        self._tape.host_waits(self._tape.last(self.number))

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WorkStream) and other.number == self.number

    def __hash__(self) -> int:
        return hash(self.number)

    def __enter__(self) -> WorkStream:
        self._before = self._tape.current
        self._tape.current = self.number
        return self

    def __exit__(self, *unused: object) -> None:
        self._tape.current = self._before


class _AnyStream(type):
    """The type of new streams: every stream of the device is an instance, also the default one."""

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, WorkStream)


class StreamEvent:
    """The work of a stream when the event was recorded."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self.nodes: frozenset[int] = frozenset()

    def record(self, stream: WorkStream | None = None) -> None:
        number = self._tape.current if stream is None else stream.number
        self.nodes = self._tape.last(number)

    def wait(self, stream: WorkStream | None = None) -> None:
        number = self._tape.current if stream is None else stream.number
        self._tape.wait(number, self.nodes)

    def synchronize(self) -> None:
        self._tape.host_waits(self.nodes)

    def query(self) -> bool:
        return True

    def elapsed_time(self, _: StreamEvent) -> float:
        self._tape.remark("assumed", "1 ms between two events, whose times are unknown")
        return 1.0


class DeviceGraph:
    """A graph of kernels: its capture is recorded as its first replay, and every later one repeats it."""

    def __init__(self, tape: Tape) -> None:
        self._tape, self._first, self._end = tape, 0, 0
        self._is_new = True

    def capture_begin(self, *_: Any, **__: Any) -> None:
        self._first = len(self._tape.nodes)

    def capture_end(self) -> None:
        self._end = len(self._tape.nodes)

    def replay(self) -> None:
        if self._is_new:
            self._tape.join({node.stream for node in self._tape.nodes[self._first : self._end]} - {HOST})
        else:
            self._tape.repeat(self._first, self._end)
        self._is_new = False

    def reset(self) -> None:
        pass

    enable_debug_mode = instantiate = reset

    def debug_dump(self, *_: Any) -> None:
        pass

    def pool(self) -> tuple[int, int]:
        return 0, 0


class Generator:
    """Random numbers of the device, with an empty state."""

    def get_state(self) -> torch.Tensor:
        return torch.zeros(16, dtype=torch.uint8, device="cpu")

    def set_state(self, _: Any) -> None:
        pass

    clone_state = graphsafe_get_state = get_state
    graphsafe_set_state = set_state


class DeviceModule:
    """The module registered as `torch.rec`, whose functions replace those of `torch.cuda`."""

    def __init__(self, tape: Tape, devices: int) -> None:
        self._tape, self._devices = tape, devices
        self._default = WorkStream(tape, COMPUTE)
        self._known = known = {COMPUTE: self._default}

        class NewStream(WorkStream, metaclass=_AnyStream):  # classes, because programs use isinstance
            def __init__(self, *_: Any, **__: Any) -> None:
                super().__init__(tape, tape.new_stream())
                known[self.number] = self

        class NewEvent(StreamEvent):
            def __init__(self, *_: Any, **__: Any) -> None:
                super().__init__(tape)

        class NewGraph(DeviceGraph):
            def __init__(self, *_: Any, **__: Any) -> None:
                super().__init__(tape)

        self.Stream, self.Event, self.CUDAGraph = NewStream, NewEvent, NewGraph

    def current_stream(self, _: Any = None) -> WorkStream:
        return self._known[self._tape.current]

    def default_stream(self, _: Any = None) -> WorkStream:
        return self._default

    def set_stream(self, stream: WorkStream) -> None:
        self._tape.current = stream.number

    @contextlib.contextmanager
    def stream(self, stream: WorkStream | None) -> Iterator[None]:
        before = self._tape.current
        self._tape.current = before if stream is None else stream.number
        try:
            yield
        finally:
            self._tape.current = before

    StreamContext = stream

    def synchronize(self, _: Any = None) -> None:
        self._tape.remark("synchronised", "the host waits for the whole device")
        self._tape.host_waits_for_all()

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def init(self) -> None:
        pass

    _lazy_init = init

    def _is_in_bad_fork(self) -> bool:
        return False

    def current_device(self) -> int:
        return 0

    def set_device(self, _: Any) -> None:
        pass

    def device_count(self) -> int:
        return self._devices

    def can_device_access_peer(self, *_: Any) -> bool:
        return True

    @contextlib.contextmanager
    def device(self, _: Any) -> Iterator[None]:
        yield

    def get_device_name(self, _: Any = None) -> str:
        return "NVIDIA H100 80GB HBM3"

    def get_device_capability(self, _: Any = None) -> tuple[int, int]:
        return (9, 0)

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16, torch.float32]

    def is_bf16_supported(self, *_: Any, **__: Any) -> bool:
        return True

    def get_autocast_dtype(self) -> torch.dtype:
        return torch.bfloat16

    # Random numbers, of which no values are drawn.

    def manual_seed(self, _: int) -> None:
        pass

    manual_seed_all = seed_all = manual_seed

    def get_rng_state(self, device: Any = None) -> torch.Tensor:  # noqa: ARG002
        return Generator().get_state()

    def set_rng_state(self, *_: Any, **__: Any) -> None:
        pass

    def get_rng_state_all(self) -> list[torch.Tensor]:
        return [self.get_rng_state()]

    def set_rng_state_all(self, _: Any) -> None:
        pass

    def initial_seed(self) -> int:
        return 0

    @property
    def default_generators(self) -> tuple[Generator, ...]:
        return (Generator(),) * self._devices

    # Memory figures, which programs print.

    def empty_cache(self) -> None:
        pass

    reset_peak_memory_stats = reset_max_memory_allocated = reset_accumulated_memory_stats = lambda *_, **__: (
        None
    )
    ipc_collect = empty_cache

    def memory_allocated(self, _: Any = None) -> int:
        self._tape.remark("assumed", "0 bytes of memory in use, as a program queried it")
        return 0

    max_memory_allocated = memory_reserved = max_memory_reserved = memory_allocated

    def memory_stats(self, _: Any = None) -> dict[str, int]:
        from collections import defaultdict

        self.memory_allocated()
        return defaultdict(int)

    def memory_summary(self, *_: Any, **__: Any) -> str:
        self.memory_allocated()
        return ""

    set_per_process_memory_fraction = _record_memory_history = _dump_snapshot = lambda *_, **__: None

    def mem_get_info(self, _: Any = None) -> tuple[int, int]:
        self._tape.remark("assumed", f"{MEMORY >> 30} GiB of memory, all free, as a program queried it")
        return MEMORY, MEMORY

    def get_device_properties(self, _: Any = None) -> Any:
        from types import SimpleNamespace

        return SimpleNamespace(
            name=self.get_device_name(), total_memory=MEMORY, major=9, minor=0, multi_processor_count=132
        )
