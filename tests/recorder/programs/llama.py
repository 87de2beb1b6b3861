"""Two steps of Hugging Face's Llama 3 8B with a number of layers, by FSDP2 and tensor parallelism."""

import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from transformers import LlamaConfig, LlamaForCausalLM

TENSOR, TOKENS, VOCABULARY = 8, 8192, 128256
layers = int(sys.argv[1])
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
mesh = init_device_mesh("cuda", (dist.get_world_size() // TENSOR, TENSOR), mesh_dim_names=("dp", "tp"))
configuration = LlamaConfig(
    hidden_size=4096,
    intermediate_size=14336,
    num_hidden_layers=layers,
    num_attention_heads=32,
    num_key_value_heads=8,
    vocab_size=VOCABULARY,
    max_position_embeddings=8192,
    use_cache=False,
)
with torch.device("meta"):
    model = LlamaForCausalLM(configuration)
split = {
    "model.embed_tokens": RowwiseParallel(input_layouts=Replicate()),
    "lm_head": ColwiseParallel(output_layouts=Replicate()),
}
for number in range(layers):
    for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"):
        split[f"model.layers.{number}.{name}"] = ColwiseParallel()
    for name in ("self_attn.o_proj", "mlp.down_proj"):
        split[f"model.layers.{number}.{name}"] = RowwiseParallel()
parallelize_module(model, mesh["tp"], split)
precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for layer in model.model.layers:
    fully_shard(layer, mesh=mesh["dp"], mp_policy=precision)
fully_shard(model, mesh=mesh["dp"], mp_policy=precision)
model.to_empty(device="cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
for _ in range(2):
    tokens = torch.randint(0, VOCABULARY, (1, TOKENS), device="cuda")
    model(input_ids=tokens, labels=tokens).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
