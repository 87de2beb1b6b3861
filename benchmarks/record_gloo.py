"""Record a few training steps with PyTorch itself: ranks on this machine's processors, with gloo.

    pip install torch==2.13.0
    python benchmarks/record_gloo.py FOLDER [--ranks 2] [--steps 2]
    et-convert pytorch FOLDER -o PREFIX

Each rank writes FOLDER/et_<rank>.json and FOLDER/kineto_<rank>.json. Besides the all-reduces of gradients,
which DistributedDataParallel makes, every step gathers, scatters, broadcasts and exchanges a message.
"""

from __future__ import annotations

import argparse
import os
import socket
from pathlib import Path
from typing import Any

WIDTH, LAYERS, BATCH = 64, 3, 32


def work(rank: int, ranks: int, folder: str, steps: int, port: int) -> None:
    """Run one rank: warm up, then record."""
    import torch
    import torch.distributed as group
    from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile

    here = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    os.environ.update(here)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    group.init_process_group("gloo", rank=rank, world_size=ranks)
    layers: list[Any] = []
    for _ in range(LAYERS):
        layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = _Step(rank, ranks, model, optimizer)
    step.run()
    observer = ExecutionTraceObserver().register_callback(f"{folder}/et_{rank}.json")
    with profile(
        activities=[ProfilerActivity.CPU], record_shapes=True, execution_trace_observer=observer
    ) as profiler:
        for _ in range(steps):
            step.run()
            profiler.step()
    profiler.export_chrome_trace(f"{folder}/kineto_{rank}.json")
    group.destroy_process_group()


class _Step:
    """One training step, and the collectives that it does not make itself."""

    def __init__(self, rank: int, ranks: int, model: Any, optimizer: Any) -> None:
        self._rank, self._ranks, self._model, self._optimizer = rank, ranks, model, optimizer

    def run(self) -> None:
        import torch
        import torch.distributed as group

        self._optimizer.zero_grad()
        self._model(torch.randn(BATCH, WIDTH)).square().mean().backward()
        self._optimizer.step()
        part, whole = torch.randn(256), torch.empty(256 * self._ranks)
        group.all_gather_into_tensor(whole, part)
        group.all_to_all_single(torch.empty_like(whole), whole)
        group.broadcast(part, 0)
        if self._rank % 2 == 0 and self._rank + 1 < self._ranks:
            group.send(part, self._rank + 1)
        elif self._rank % 2:
            group.recv(part, self._rank - 1)
        group.barrier()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=2)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    from torch import multiprocessing

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    arguments = (options.ranks, str(options.folder), options.steps, port)
    multiprocessing.spawn(work, arguments, nprocs=options.ranks)


if __name__ == "__main__":
    main()
