"""Times of passes in which each operation waits for the last one, without a simulation of every pass.

The ranks of a stage do the same at the same time: kernels, and exchanges that begin when the links are idle
and that all members leave at the same time. So a pass takes the sum of the times of its operations, and each
of these depends on the operation alone. A kernel has the time that lowering gives it. Exchanges and messages
between stages are simulated one after the other, once for each size (`exchanges`).

Where this does not hold, there is no such time, and passes are simulated: on machines with stragglers, if
members leave an exchange at different times, or if stages compute at the same time. The first pass of each
structure is simulated, too; if it does not take the sum, all passes of its structure are simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from msgspec.structs import astuple, replace

from et_sim.machine.model import QueueOrder
from et_sim.plan.kernel_times import are_plain
from et_sim.run.simulation import Task
from et_sim.serving.exchanges import LEAD_NS, ExchangeTimes
from et_sim.trace import Trace
from et_sim.trace.builder import TraceBuilder
from et_sim.workloads.axes import Axes
from et_sim.workloads.counting import (
    CountedProgram,
    ExchangeStep,
    KernelStep,
    MessageStep,
    NoChainError,
    Work,
    counted_programs,
    equal_parts,
)
from et_sim.workloads.inference.batch import AttentionSight, Batch, Segment
from et_sim.workloads.rank import Program

SIZES = (("duration_us", "micros"), ("num_ops", "num_ops"), ("tensor_bytes", "tensor_bytes"))
OWN = ("node_id", "layer_shape", "data_start", "data_deps", "ctrl_start", "ctrl_deps")  # columns of a trace
PassProgram = Callable[[Batch], tuple[Axes, Program]]
MODELS = ("analytical", "flow")  # of networks on which idle links have no memory


def has_chains(task: Task) -> bool:
    """Return whether the times of operations on idle links depend on nothing before."""
    system, network = task.machine.system, task.machine.network
    if task.model.name not in MODELS or not are_plain(task.machine):
        return False
    if system.queue_order is QueueOrder.RG or system.shared_bus is not None:
        return False
    model = task.network_model()
    has_fractions = task.machine.network_of(has_contention=model.HAS_CONTENTION).fraction_bits > 0
    return not has_fractions and model.path_keys(network, whole=False) is not None


def trials(sights: Sequence[AttentionSight]) -> tuple[Batch, ...]:
    """Return batches in which layers that differ have other kernels."""
    mixed = (Segment(1499, 0), Segment(331, 123_457), Segment(1, 7_919), Segment(1, 611_953))
    short = (Segment(7, 5), Segment(1, 3))
    return Batch.of(mixed, sights=sights), Batch.of(short, sights=sights)


class KernelTraces:
    """Traces of kernels, made of one of each kind with the sizes of others."""

    def __init__(self) -> None:
        self._of_kind: dict[tuple[Any, ...], int] = {}
        self._samples: list[KernelStep] = []  # the first kernel of each kind
        self._made = built_trace(())
        columns = zip(Trace.__struct_fields__, astuple(self._made), strict=True)
        own = {*OWN, *(column for column, _ in SIZES)}
        self._columns = [
            name for name, column in columns if isinstance(column, np.ndarray) and name not in own
        ]

    def trace(self, kernels: Sequence[KernelStep]) -> Trace:
        """Return a trace of kernels."""
        rows = np.array([self._row(kernel) for kernel in kernels])
        if len(self._made) < len(self._samples):
            self._made = built_trace(self._samples)
        try:
            sizes = {
                column: np.array([getattr(kernel, name) or 0 for kernel in kernels], np.int64)
                for column, name in SIZES
            }
        except OverflowError:
            return built_trace(kernels)  # which refuses them
        texts = dict.fromkeys(kernel.layer_shape for kernel in kernels if kernel.layer_shape is not None)
        number = {text: at for at, text in enumerate(texts, 1)}
        shape = [number.get(kernel.layer_shape or "", 0) for kernel in kernels]
        starts = np.zeros(len(kernels) + 1, np.int64)
        return replace(
            self._made,
            **{name: getattr(self._made, name)[rows] for name in self._columns},
            **sizes,
            node_id=np.arange(len(kernels), dtype=np.uint64),
            layer_shape=np.array(shape, np.int32),
            layer_shapes=("", *texts),
            data_start=starts,
            ctrl_start=starts,
        )

    def _row(self, kernel: KernelStep) -> int:
        """Return the number of a kernel's kind: of those with the same attributes."""
        has = tuple(getattr(kernel, name) is not None for _, name in SIZES)
        kind = (*has, kernel.layer_shape is not None, kernel.dtype, kernel.attributes)
        if kind not in self._of_kind:
            self._of_kind[kind] = len(self._samples)
            self._samples.append(kernel)
        return self._of_kind[kind]


def built_trace(kernels: Iterable[KernelStep]) -> Trace:
    """Return a trace of kernels, built one by one."""
    builder = TraceBuilder(source="<kernels>")
    for micros, operations, size, shape, datatype, attributes in kernels:
        builder.compute(
            "kernel",
            micros=micros,
            num_ops=operations,
            tensor_bytes=size,
            layer_shape=shape,
            dtype=datatype,
            attributes=dict(attributes),
        )
    return builder.build()


class KernelTimes:
    """The times of kernels, each computed once."""

    def __init__(self, times: Callable[[Trace], Any]) -> None:
        self._times = times
        self._known: dict[KernelStep, int] = {}
        self._traces = KernelTraces()

    def __getitem__(self, kernel: KernelStep) -> int:
        return self._known[kernel]

    def add(self, kernels: Iterable[KernelStep]) -> None:
        """Compute the times of new kernels, all at once."""
        new = [kernel for kernel in kernels if kernel not in self._known]
        if not new:
            return
        self._known.update(zip(new, self._times(self._traces.trace(new)).tolist(), strict=True))


class Chains:
    """The passes of a replica as chains of operations."""

    def __init__(
        self,
        program: PassProgram,
        trials: Sequence[Batch],
        kernels: KernelTimes,
        exchanges: ExchangeTimes,
    ) -> None:
        """Find the equal layers of passes over `trials`."""
        self._program, self._kernels, self._exchanges = program, kernels, exchanges
        self._is_sum: dict[tuple[object, ...], bool] = {}  # by structure
        made = [program(batch) for batch in trials]
        self._equal = equal_parts(made[0][0], [trial for _, trial in made])

    def pass_ns(self, batch: Batch, simulate: Callable[[], int]) -> int:
        """Return the time of a pass."""
        try:
            programs = counted_programs(*self._program(batch), self._equal)
            structure = tuple(program.structure for program in programs)
            if not self._is_sum.get(structure, True):
                return simulate()
            total = self._sum(programs)
        except NoChainError:
            return simulate()
        if structure not in self._is_sum:
            simulated = simulate()
            self._is_sum[structure] = simulated == total
            return simulated
        return total

    def _sum(self, programs: Sequence[CountedProgram]) -> int:
        works = [(program, step) for program in programs for step in program.steps]
        self._kernels.add(
            key for _, step in works if isinstance(step, dict) for key in step if isinstance(key, KernelStep)
        )
        self._exchanges.add(programs)
        return _Walk(programs).run(self._time, self._exchanges)

    def _time(self, program: CountedProgram, work: Work) -> int:
        return sum(
            count
            * (self._exchanges.ns(program, step) if isinstance(step, ExchangeStep) else self._kernels[step])
            for step, count in work.items()
        )


class _Walk:
    """The programs of all stages, one after the other; each runs until it sends to the next one."""

    def __init__(self, programs: Sequence[CountedProgram]) -> None:
        self._programs = programs
        self._at = [0] * len(programs)
        self._waits_since = [0] * len(programs)

    def run(self, time: Callable[[CountedProgram, Work], int], exchanges: ExchangeTimes) -> int:
        """Return the time until all ranks are done."""
        begins = [number for number, program in enumerate(self._programs) if program.steps[0]]
        if len(begins) != 1:
            raise NoChainError
        number, now, end = begins[0], 0, 0
        while True:
            program, sent = self._programs[number], None
            for step in program.steps[self._at[number] :]:
                if isinstance(step, dict):
                    if step and sent is not None:
                        raise NoChainError  # it goes on while its message is under way
                    now += time(program, step)
                elif step.is_sent and sent is None:
                    sent = step
                else:
                    break
                self._at[number] += 1
            end, self._waits_since[number] = max(end, now), now
            if sent is None:
                break
            number = self._receiver(program, sent)
            times = exchanges.message(program, sent)
            if now - self._waits_since[number] < LEAD_NS:
                raise NoChainError
            end, now = max(end, now + times.sent_ns), now + times.received_ns
            self._at[number] += 1
        if any(at < len(program.steps) for at, program in zip(self._at, self._programs, strict=True)):
            raise NoChainError
        return end

    def _receiver(self, program: CountedProgram, sent: MessageStep) -> int:
        """Return the number of the program that waits for a message."""
        ranks = tuple(rank + sent.distance for rank in program.ranks)
        wanted = sent._replace(is_sent=False, distance=-sent.distance)
        for number, other in enumerate(self._programs):
            at = self._at[number] + (other.steps[self._at[number] : self._at[number] + 1] == ({},))
            if other.ranks == ranks and other.steps[at : at + 1] == (wanted,):
                self._at[number] = at
                return number
        raise NoChainError
