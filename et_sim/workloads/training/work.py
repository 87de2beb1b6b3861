"""The state of a rank's program in a step: the pass, the layer, and the last nodes.

Parts of a layer describe kernels and exchanges; `RankWork` adds them as named nodes in their streams.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType

from msgspec import Struct, field

from et_sim.workloads.kernels import Kernel
from et_sim.workloads.rank import MAIN, Rank
from et_sim.workloads.recording import Nodes
from et_sim.workloads.training.plan import Plan
from et_sim.workloads.training.states import Tensors

FIRST_RING_TAG = 1 << 28
NOTHING: Tensors = MappingProxyType({})


class RankWork(Struct):
    """The program of a rank so far."""

    rank: Rank
    plan: Plan
    during: str = ""  # the pass
    where: str = ""  # the layer or other part of the model
    at: Nodes = ()  # dependencies of the next computation
    has_weights_pass: bool = False  # gradients of weights come in a pass of their own
    put_off: list[Callable[[], None]] = field(default_factory=list)  # gradients of weights
    kernels: list[int] = field(default_factory=list)  # nodes of kernels
    cast: set[tuple[str, ...]] = field(default_factory=set)  # weights that were cast, and the place
    _tag: int = FIRST_RING_TAG

    def name(self, role: str) -> str:
        """Return the name of a node."""
        return f"{self.during} {self.where} {role}" if self.where else f"{self.during} {role}"

    def compute(self, kernel: Kernel, after: Nodes | None = None) -> Nodes:
        """Add a kernel to the main stream; its node has a time for machines without one."""
        operations, size = kernel.operations, kernel.bytes
        micros = max(operations / (self.plan.tflops * 1e6), size / (self.plan.memory_gbps * 1e3))
        nodes = self.rank.compute(
            self.name(kernel.name),
            micros=max(round(micros), 1),
            num_ops=operations,
            tensor_bytes=size,
            layer_shape=kernel.shape,
            dtype=kernel.dtype or self.plan.values or None,
            after=self.at if after is None else after,
            attributes={
                **({"cold": 1} if kernel.is_cold else {}),
                **({"launches": kernel.launches} if kernel.launches != 1 else {}),
            },
        )
        self.kernels += nodes
        return nodes

    def then(self, kernel: Kernel) -> None:
        """Add a kernel that the next one needs."""
        self.at = self.compute(kernel)

    def exchange(
        self,
        kind: str,
        bytes: int,
        over: str | Sequence[str],
        name: str,
        stream: str = MAIN,
        splits: Sequence[int] | None = None,
    ) -> None:
        """Add a collective that the next kernel needs."""
        if bytes or splits:
            self.at = self.rank.collective(
                kind, bytes, over, name=self.name(name), after=self.at, stream=stream, splits=splits
            )

    def begin(self, since: int, *, reads: Tensors = NOTHING, writes: Tensors = NOTHING) -> None:
        """Name tensors of the first kernel after a number of others, or else of the last one."""
        first = self.kernels[since : since + 1] or self.kernels[-1:]
        self.name_tensors(tuple(first), reads, writes)

    def end(self, *reads: Tensors) -> None:
        """Name tensors that the last kernel reads."""
        for tensors in reads:
            self.name_tensors(tuple(self.kernels[-1:]), tensors, NOTHING)

    def name_tensors(self, nodes: Nodes, reads: Tensors, writes: Tensors) -> None:
        """Name tensors that nodes read and write."""
        for node in nodes if reads or writes else ():
            self.rank.recording.name_tensors(node, reads, writes)

    def next_tag(self) -> int:
        """Return a tag that no other message of the rank has; its peers count the same."""
        self._tag += 1
        return self._tag

    def later(self, work: Callable[[], None]) -> None:
        """Postpone work that only gives gradients of weights."""
        self.put_off.append(work)

    def catch_up(self) -> None:
        """Run all postponed work."""
        put_off, self.put_off = self.put_off, []
        for work in put_off:
            work()
