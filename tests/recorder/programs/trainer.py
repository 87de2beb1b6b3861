"""Two steps of Hugging Face's Trainer with a small Llama: DDP or FSDP2, by the argument."""

import sys

import torch
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

VOCABULARY, TOKENS = 1000, 128
SHARDED = {
    "fsdp": True,
    "fsdp_config": {"version": 2, "fsdp_version": 2, "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]},
}


class Tokens(Dataset):
    """Random tokens."""

    def __len__(self) -> int:
        return 1024

    def __getitem__(self, at: int) -> dict[str, torch.Tensor]:
        tokens = torch.randint(0, VOCABULARY, (TOKENS,))
        return {"input_ids": tokens, "labels": tokens}


configuration = LlamaConfig(
    hidden_size=256,
    intermediate_size=512,
    num_hidden_layers=2,
    num_attention_heads=4,
    vocab_size=VOCABULARY,
    use_cache=False,
)
arguments = TrainingArguments(
    output_dir=sys.argv[2],
    max_steps=2,
    per_device_train_batch_size=2,
    gradient_accumulation_steps=2,
    bf16=True,
    report_to=[],
    save_strategy="no",
    logging_steps=1,
    disable_tqdm=True,
    **(SHARDED if sys.argv[1] == "fsdp" else {}),
)
Trainer(model=LlamaForCausalLM(configuration), args=arguments, train_dataset=Tokens()).train()
