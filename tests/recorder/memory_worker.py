"""A program on tensors without values, in which PyTorch's own tracker counts memory: writes the peak.

DEVICE=cpu … python memory_worker.py OUTPUT PROGRAM ARGUMENTS…
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.distributed import device_mesh
from torch.distributed._tools.mem_tracker import MemTracker
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.testing._internal.distributed.fake_pg import FakeStore

if __name__ == "__main__":
    output, world, script, *rest = sys.argv[1:]
    begin = dist.init_process_group

    def initialise(*_: Any, **__: Any) -> None:
        begin("fake", store=FakeStore(), rank=0, world_size=int(world))

    def mesh(*args: Any, **kwargs: Any) -> device_mesh.DeviceMesh:
        with unset_fake_temporarily():  # the ranks of a mesh are numbers
            return make_mesh(*args, **kwargs)

    make_mesh = device_mesh.init_device_mesh
    dist.init_process_group, device_mesh.init_device_mesh = initialise, mesh
    sys.argv = [script, *rest]
    tracker = MemTracker()
    register_optimizer_step_post_hook(lambda *_: tracker.reset_mod_stats())  # it follows one step at a time
    with torch.autograd.set_multithreading_enabled(False), FakeTensorMode(), tracker:
        runpy.run_path(script, run_name="__main__")
    peak = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]
    Path(output).write_text(str(peak), encoding="utf-8")
