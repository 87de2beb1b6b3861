"""Steps of Llama 3 8B as torchtitan trains it: FSDP2, selective recomputation, compiled layers."""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

WIDTH, INNER, HEADS, KEY_HEADS, LAYERS, WORDS = 4096, 14336, 32, 8, 32, 128256
ROWS, TOKENS = 2, 8192
HEAD = WIDTH // HEADS
KEPT = (
    torch.ops.aten.mm.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops._c10d_functional.reduce_scatter_tensor.default,
)


def angles():
    steps = 500000.0 ** -(torch.arange(0, HEAD, 2, device="cuda").float() / HEAD)
    turns = torch.outer(torch.arange(TOKENS, device="cuda").float(), steps)
    return torch.polar(torch.ones_like(turns), turns)


def rotate(x, turns):
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns[None, :, None]).flatten(3).type_as(x)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.q, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))
        self.k, self.v = (nn.Linear(WIDTH, KEY_HEADS * HEAD, bias=False) for _ in range(2))
        self.w1, self.w3 = (nn.Linear(WIDTH, INNER, bias=False) for _ in range(2))
        self.w2 = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x, turns):
        rows, tokens, _ = x.shape
        y = self.norm1(x)
        q, k, v = (part(y).view(rows, tokens, -1, HEAD) for part in (self.q, self.k, self.v))
        q, k = rotate(q, turns), rotate(k, turns)
        k, v = (part.repeat_interleave(HEADS // KEY_HEADS, 2) for part in (k, v))
        mixed = F.scaled_dot_product_attention(*(part.transpose(1, 2) for part in (q, k, v)), is_causal=True)
        x = x + self.o(mixed.transpose(1, 2).reshape(rows, tokens, WIDTH))
        y = self.norm2(x)
        return x + self.w2(F.silu(self.w1(y)) * self.w3(y))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.norm = nn.Embedding(WORDS, WIDTH), nn.RMSNorm(WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens, turns):
        x = self.words(tokens)
        for layer in self.layers:
            x = layer(x, turns)
        return self.head(self.norm(x))


def contexts():
    """Keep the outputs of every other product, of attention, and of reduce-scatters."""
    products = {False: 0, True: 0}

    def policy(context, operator, *_, **__):
        if operator is torch.ops.aten.mm.default:
            products[context.is_recompute] += 1
        is_kept = operator in KEPT and (operator is not KEPT[0] or products[context.is_recompute] % 2)
        return CheckpointPolicy.MUST_SAVE if is_kept else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
mesh = init_device_mesh("cuda", (dist.get_world_size(),))
with torch.device("meta"):
    model = Llama()
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for number, layer in enumerate(model.layers):
    layer = torch.compile(checkpoint_wrapper(layer, context_fn=contexts, preserve_rng_state=False))
    model.layers[number] = fully_shard(layer, mesh=mesh, mp_policy=policy)
fully_shard([model.norm, model.head], mesh=mesh, mp_policy=policy, reshard_after_forward=False)
fully_shard(model, mesh=mesh, mp_policy=policy)
model.to_empty(device="cuda")
turns = angles()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
for _ in range(2):
    tokens = torch.randint(0, WORDS, (ROWS, TOKENS + 1)).cuda()
    logits = model(tokens[:, :-1], turns)
    F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten()).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
