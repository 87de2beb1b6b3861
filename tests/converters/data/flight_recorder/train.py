"""Hang in one of several ways, and dump the flight recorder of this rank: rank, ranks, port, way, folder."""

import os
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

rank, ranks, port, way, folder = (
    int(sys.argv[1]),
    int(sys.argv[2]),
    sys.argv[3],
    sys.argv[4],
    Path(sys.argv[5]),
)
size = "8" if way == "overwritten" else "2000"
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, TORCH_FR_BUFFER_SIZE=size, OMP_NUM_THREADS="1")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch._C import _distributed_c10d as recorder  # noqa: E402

dist.init_process_group("gloo", rank=rank, world_size=ranks, timeout=timedelta(seconds=600))
half = dist.new_group([0, 1])
x = torch.ones(16)


def write() -> None:
    """Write the dump of this rank."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"trace_rank_{rank}").write_bytes(recorder._dump_fr_trace())
    (folder / f"trace_rank_{rank}.json").write_bytes(recorder._dump_fr_trace_json())


def dump() -> None:
    """Write the dump of this rank, and end."""
    write()
    os._exit(0)


def average() -> None:
    dist.all_reduce(x)


def step() -> None:
    average()
    if rank < 2:
        dist.all_reduce(x, group=half)
    average()


def check_loss() -> None:
    if way == "size" and rank != 1:
        time.sleep(20)
    if way == "missing" and rank == 1:
        time.sleep(600)
    if way == "dead" and rank == 1:
        os._exit(0)
    if way == "order" and rank == 1:
        dist.broadcast(x, 0)
    elif way == "size" and rank == 1:
        dist.all_reduce(torch.ones(8), async_op=True)
        write()
    elif way == "message" and rank == 0:
        dist.recv(x, 1)
    elif way == "crossed" and rank == 1:
        dist.all_reduce(x, group=half)
        average()
    else:
        average()


threading.Timer(25.0 if way == "size" and rank != 1 else 5.0, dump).start()
for _ in range(6 if way == "overwritten" else 1):
    step()
if way == "overwritten":
    way = "missing"
check_loss()
if rank < 2:
    dist.all_reduce(x, group=half)
time.sleep(600)
