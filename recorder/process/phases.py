"""The module and the part of a step to which an operator belongs.

Modules are identified by their forward calls. An operator of a backward pass belongs to the module whose
forward call made the running node of the autograd graph. Steps end with that of the first optimizer.
"""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers
from torch.utils.weak import WeakIdKeyDictionary

from recorder.process.storages import Storages
from recorder.process.tape import Tape
from recorder.recorded import StepPhase


class TapePhases:
    """The current module, phase and step of the tape."""

    def __init__(self, tape: Tape, storages: Storages) -> None:
        self._tape, self._storages = tape, storages
        self._names = WeakIdKeyDictionary()  # of modules: another may get the address of one that is gone
        self._stack: list[str] = []
        # module and call of a compiled region, by number of the node of autograd
        self._of_node: dict[int, tuple[str, int]] = {}
        self._regions: list[int] = []
        self._in_optimizer = 0
        self._in_backward = 0  # also set after the last node of autograd has run
        self._leader: Any = None  # a reference to the optimizer whose steps count
        self._step = 0
        self.weights = 0  # elements of all modules that were called
        self._counted = WeakIdKeyDictionary()  # weights

    def install(self) -> None:
        """Register hooks of modules and optimizers permanently: the process belongs to the program."""
        modules.register_module_forward_pre_hook(self._enter)
        modules.register_module_forward_hook(self._leave, always_call=True)
        optimizers.register_optimizer_step_pre_hook(self._begin_update)
        optimizers.register_optimizer_step_post_hook(self._end_update)

    @contextlib.contextmanager
    def backward(self) -> Iterator[None]:
        """Mark a backward pass, which may begin inside a forward call."""
        outer, self._stack, self._regions = (self._stack, self._regions), [], []
        self._in_backward += 1
        try:
            yield
        finally:
            self._in_backward -= 1
            self._stack, self._regions = outer

    @contextlib.contextmanager
    def in_region(self) -> Iterator[None]:
        """Mark the call of a compiled region; one within another is part of it."""
        if not self._regions:
            self._tape.region_calls += 1
        self._regions.append(self._tape.region_calls)
        try:
            yield
        finally:
            self._regions.pop()

    def look(self) -> None:
        """Set module, phase and region of the tape before an operator."""
        tape = self._tape
        node = torch._C._current_autograd_node()
        tape.module, tape.region = "", self._regions[0] if self._regions else -1
        if self._in_optimizer:
            tape.phase = StepPhase.OPTIMIZER
        elif self._in_backward and not self._stack and not self._regions:
            tape.phase = StepPhase.BACKWARD
            if node is not None:
                tape.module, tape.region = self._of_node.get(node._sequence_nr(), ("", -1))
        elif self._stack or self._regions:
            tape.phase = StepPhase.RECOMPUTE if self._in_backward else StepPhase.FORWARD
            tape.module = self._stack[-1] if self._stack else ""
            self._of_node[torch._C._autograd._get_sequence_nr() - 1] = tape.module, tape.region
        else:
            tape.phase = StepPhase.SETUP if tape.step < 0 else StepPhase.FORWARD

    def _enter(self, module: torch.nn.Module, _: Any) -> None:
        if not self._stack:
            if module not in self._names:
                self._learn(module)
            if not self._in_backward:
                self._tape.step = self._step
        self._stack.append(self._names.get(module, type(module).__name__))

    def _leave(self, *_: Any) -> None:
        if self._stack:
            self._stack.pop()

    def _learn(self, root: torch.nn.Module) -> None:
        for name, module in root.named_modules():
            self._names.setdefault(module, name.removeprefix("module.").replace("_orig_mod.", ""))
        weights = list(root.parameters())
        for weight in weights:
            self._storages.label(_local(weight), "weights")
            if weight not in self._counted:
                self._counted[weight] = True
                self.weights += weight.numel()

    def _begin_update(self, optimizer: Any, *_: Any) -> None:
        if self._leader is None or self._leader() is None:
            self._leader = weakref.ref(optimizer)
        self._in_optimizer += 1
        for group in optimizer.param_groups:
            for weight in group["params"]:
                self._storages.label(_local(weight), "weights")
                if weight.grad is not None:
                    self._storages.label(_local(weight.grad), "gradients")

    def _end_update(self, optimizer: Any, *_: Any) -> None:
        self._in_optimizer -= 1
        if self._leader is not None and self._leader() is optimizer:
            self._step += 1
            self._tape.recorded.steps = self._step
            gc.collect()  # cycles would keep storages alive that are freed on a device with memory of its own
            self._tape.step = self._step
            self._of_node.clear()


def _local(tensor: Any) -> torch.Tensor:
    """Return the part of a DTensor that the rank has."""
    result = getattr(tensor, "_local_tensor", tensor)
    return result if isinstance(result, torch.Tensor) else tensor
