"""Regions that the program compiles (`torch.compile`) run as written, and chains are fused afterwards.

The rule: within a call of a region, forward or backward, consecutive element-wise operators and casts of a
stream are one kernel if each reads the output of an earlier one in the kernel, and waits for nothing else.
The kernel reads external inputs once, and writes only outputs that a later node reads. Products, reductions
and copies stay separate, and autograd saves the same tensors as in the eager program: a compiler may do
better.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from et_sim.basics.units import plural
from et_sim.trace import shapes
from recorder.process.costs import size_of
from recorder.process.phases import TapePhases
from recorder.process.storages import Storages
from recorder.process.tape import Tape
from recorder.recorded import RecordedKind, RecordedNode

Sizes = dict[int, int]  # bytes that are read or written, by the number of the tensor


class Regions:
    """The element-wise kernels of regions."""

    def __init__(self, tape: Tape, storages: Storages) -> None:
        self._tape, self._storages = tape, storages
        self._kernels: dict[int, tuple[Sizes, Sizes]] = {}  # reads and writes of kernels that may be fused
        self._region: dict[int, int] = {}

    def notice(self, reads: list[torch.Tensor], writes: list[torch.Tensor]) -> None:
        """Record that the last node is element-wise and uses these tensors."""
        if self._tape.region >= 0:
            at = len(self._tape.nodes) - 1
            self._kernels[at], self._region[at] = (self._sizes(reads), self._sizes(writes)), self._tape.region

    def _sizes(self, tensors: list[torch.Tensor]) -> Sizes:
        """Return bytes by tensor; of several views, the largest."""
        sizes: Sizes = {}
        for tensor in tensors:
            number = self._storages.of(tensor).number
            sizes[number] = max(size_of([tensor]), sizes.get(number, 0))
        return sizes

    def fuse(self) -> None:
        """Make a kernel of each chain, and add a remark with their number."""
        if not self._tape.region_calls:
            return
        chains = list(self._chains())
        place = {at: chain[0] for chain in chains for at in chain[1:]}
        hidden: set[int] = set()
        for chain in chains:
            hidden |= self._merge(chain)
        nodes = self._tape.nodes
        launches = {
            after for at in place for after in nodes[at].after if nodes[after].work is RecordedKind.HOST
        }
        self._renumber(launches | place.keys(), place, hidden)
        kernels = len(self._kernels)
        self._tape.remark(
            "compiled",
            f"{plural(self._tape.region_calls, 'call')} of compiled regions recorded as eager operators,"
            f" {kernels:,} element-wise ones of which are {kernels - len(place):,} kernels",
        )

    def _chains(self) -> Iterator[list[int]]:
        """Yield the nodes of each fused kernel, two or more."""
        chain: list[int] = []
        written: set[int] = set()
        for at in sorted(self._kernels):
            reads, writes = self._kernels[at]
            if not (chain and self._continues(chain[-1], at) and not written.isdisjoint(reads)):
                if len(chain) > 1:
                    yield chain
                chain, written = [], set()
            chain.append(at)
            written.update(writes)
        if len(chain) > 1:
            yield chain

    def _continues(self, last: int, at: int) -> bool:
        """Return whether a node follows another directly in its region, and waits only for it and its own
        launch.
        """
        nodes = self._tape.nodes
        last_node, other = nodes[last], nodes[at]
        is_next = all(nodes[between].work is RecordedKind.HOST for between in range(last + 1, at))
        waits = [after for after in other.after if nodes[after].work is not RecordedKind.HOST]
        return (
            is_next
            and waits == [last]
            and self._region[last] == self._region[at]
            and (last_node.stream, last_node.phase, last_node.step) == (other.stream, other.phase, other.step)
        )

    def _merge(self, chain: list[int]) -> set[int]:
        """Merge a chain into its first node; return the tensors that no other node uses."""
        nodes = [self._tape.nodes[at] for at in chain]
        reads: Sizes = {}
        written: Sizes = {}
        for at in chain:
            more, writes = self._kernels[at]
            for number, size in more.items():
                if number not in written:
                    reads[number] = max(size, reads.get(number, 0))
            written.update(writes)
        hidden = {
            number
            for number in written
            if self._storages.first_use[number] >= chain[0]
            and self._storages.last_read.get(number, -1) <= chain[-1]
        }
        kept = {number: size for number, size in written.items() if number not in hidden}
        first, elements = nodes[0], max(node.operations for node in nodes)
        computing = sum(node.operations > 0 for node in nodes)
        first.operator = f"fused {' '.join(dict.fromkeys(node.operator for node in nodes))}"
        first.operations = sum(node.operations for node in nodes)
        first.shape = shapes.elementwise(elements, max(len(reads), 1), computing) if elements else ""
        first.bytes = sum(reads.values()) + sum(kept.values())
        first.reads = list(dict.fromkeys(number for node in nodes for number in node.reads))
        first.writes = list(dict.fromkeys(number for node in nodes for number in node.writes))
        return hidden

    def _renumber(self, gone: set[int], place: dict[int, int], hidden: set[int]) -> None:
        """Remove merged nodes; dependents of a removed launch wait for the launch before it."""
        nodes = self._tape.nodes
        number: list[int] = []
        kept: list[RecordedNode] = []
        before = -1  # the last launch that stays
        for at, node in enumerate(nodes):
            if at in place:
                number.append(number[place[at]])
            elif at in gone:
                number.append(before)
            else:
                number.append(len(kept))
                before = number[at] if node.work is RecordedKind.HOST else before
                node.after = sorted({number[place] for place in node.after} - {-1})
                node.reads = [read for read in node.reads if read not in hidden]
                node.writes = [write for write in node.writes if write not in hidden]
                kept.append(node)
        nodes[:] = kept


def patch_compile(phases: TapePhases) -> None:
    """Replace `torch.compile` by a function that marks a region and compiles nothing."""

    def compile_(model: Any = None, *, disable: bool = False, **options: Any) -> Any:
        if model is None:
            return functools.partial(compile_, disable=disable, **options)
        if disable:
            return model
        return _module(model, phases) if isinstance(model, torch.nn.Module) else _function(model, phases)

    torch.compile = compile_
    warnings.filterwarnings("ignore", message="Using `torch.compile\\(module\\)` when there are global hooks")


def _function(function: Callable[..., Any], phases: TapePhases) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with phases.in_region():
            return function(*args, **kwargs)

    return call


def _module(module: torch.nn.Module, phases: TapePhases) -> torch.nn.Module:
    """Wrap a module as PyTorch does, which changes the names of its weights."""
    from torch._dynamo.eval_frame import DisableContext, OptimizedModule

    wrapped = OptimizedModule(module, DisableContext())
    wrapped.forward = _function(module.__call__, phases)
    return wrapped
