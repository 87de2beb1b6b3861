"""A script with parts that many scripts contain; the first argument lists them, with commas between."""

import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.utils.flop_counter import register_flop_formula

dist.init_process_group("nccl")
rank, world, local = dist.get_rank(), dist.get_world_size(), int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
device = torch.device("cuda", local)


def ddp():
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).cuda(local)
    model = nn.parallel.DistributedDataParallel(model, device_ids=[local])
    model(torch.randn(8, 64)).square().mean().backward()


def offload():
    from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel

    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    options = {"cpu_offload": CPUOffload(offload_params=True), "device_id": local, "use_orig_params": True}
    model = FullyShardedDataParallel(model, **options)
    model(torch.randn(8, 64, device=device)).square().mean().backward()


def contrast():
    from torch.distributed.nn.functional import all_gather

    torch.cat(all_gather(torch.randn(4, 16, device=device, requires_grad=True))).sum().backward()


def settings():
    sent = [{"seed": 7, "text": "x" * 200}] if rank == 0 else [None]
    dist.broadcast_object_list(sent, src=0)
    if sent[0] != {"seed": 7, "text": "x" * 200}:
        raise SystemExit("another object arrived")
    own = [None]
    dist.scatter_object_list(own, [f"part {at}" for at in range(world)] if rank == 0 else None, src=0)
    if own[0] != f"part {rank}":
        raise SystemExit("another part arrived")


def mask():
    chosen = nn.Linear(32, 4).to(device)(torch.randn(30, 32, device=device)).topk(1, dim=1).indices
    of_expert = torch.zeros(30, 4, dtype=torch.int64, device=device).scatter_(1, chosen, 1).sum(0).tolist()
    if of_expert != [8, 8, 7, 7]:
        raise SystemExit(f"tokens are not even: {of_expert}")
    data = torch.randn(30, 32, device=device)[chosen.flatten().argsort()]
    torch.cat([part @ torch.randn(32, 32, device=device) for part in data.split(of_expert)])


def empty():
    torch.randn(0, 32, device=device) @ torch.randn(32, 32, device=device)
    torch.randn(4, 0, device=device) @ torch.randn(0, 32, device=device)


def own():
    @torch.library.custom_op("ours::outer", mutates_args=())
    def outer(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError  # a kernel of the device

    outer.register_fake(lambda left, right: left.new_empty(left.numel(), right.numel()))
    register_flop_formula(torch.ops.ours.outer)(
        lambda left, right, out_shape=None: 3 * left[0] * right[0]  # noqa: ARG005
    )
    outer(torch.randn(5, device=device), torch.randn(7, device=device))


def save():
    checkpoint.save({"model": nn.Linear(4, 4).to(device).state_dict()}, checkpoint_id="nowhere/at/all")


def recurrent():
    for make in (nn.GRU, nn.LSTM):
        make(16, 32).to(device)(torch.randn(5, 4, 16, device=device))[0].sum().backward()


def packed():
    rows = nn.utils.rnn.pack_padded_sequence(torch.randn(5, 4, 16, device=device), torch.tensor([5, 3, 3, 1]))
    nn.utils.rnn.pad_packed_sequence(nn.LSTM(16, 8).to(device)(rows)[0])[0].sum().backward()


def batch():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))
    nn.SyncBatchNorm.convert_sync_batchnorm(model).to(device)(
        torch.randn(2, 3, 9, 9, device=device)
    ).sum().backward()


def ctc():
    scores = torch.randn(50, 4, 20, device=device, requires_grad=True)
    lengths = torch.full((4,), 50), torch.full((4,), 10)
    F.ctc_loss(
        scores.log_softmax(-1), torch.ones(4, 10, dtype=torch.int64, device=device), *lengths
    ).backward()


def graph():
    model, data = nn.Linear(16, 16).to(device), torch.randn(4, 16, device=device)
    replayed = torch.cuda.CUDAGraph()
    with torch.cuda.graph(replayed):
        model(data)
    for _ in range(3):
        replayed.replay()


def ring():
    data, received = torch.randn(64, device=device), torch.empty(64, device=device)
    calls = (
        dist.P2POp(dist.isend, data, (rank + 1) % world),
        dist.P2POp(dist.irecv, received, (rank - 1) % world),
    )
    for work in dist.batch_isend_irecv(list(calls)):
        work.wait()


def cycles():
    """Keep tensors in circles of objects, beside other objects that are more on later ranks."""
    for _ in range(20):
        held = [torch.ones(8, device=device) * 2]
        held.append(held)
        del held
        [[] for _ in range(300 * rank)]


def short():
    """Call modules in the memory of others that are gone."""
    data = torch.randn(4, 16, device=device)
    for _ in range(20):
        nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16)).to(device)(data)
        nn.Linear(16, 16).to(device)(data)
        torch.optim.SGD([nn.Parameter(data)], lr=0.1).step()


def sparse():
    nn.Embedding(100, 16, sparse=True).to(device)(torch.zeros(4, dtype=torch.int64, device=device))


def nested():
    torch.nested.nested_tensor([torch.randn(3, 16), torch.randn(5, 16)], layout=torch.jagged)


def layer():
    module = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0).to(device)
    module(torch.randn(2, 8, 64, device=device)).sum().backward()


def launched():
    sys.path.append(sys.argv[2])
    from triton.runtime.jit import JITFunction

    JITFunction().run(torch.randn(4, device=device))


def flexible():
    from torch.nn.attention.flex_attention import flex_attention

    data = torch.randn(1, 4, 128, 64, device=device)
    flex_attention(data, data, data)


for name in sys.argv[1].split(","):
    globals()[name]()
dist.all_reduce(torch.ones(1, device=device))
