"""Training iterations of tables: the model and the plan that the columns of a row describe.

What a table does not say is taken as its framework does it: Megatron sums gradients in fp32, DeepSpeed in
16 bits, and its Megatron exchanges gradients of inputs before it goes on; stages of both wait for what they
send and receive, of which tensor-parallel ranks send a share each. Jobs of FSDP have no dropout. Activations
are worked out again where a column or the table's defaults say so.

Not here: how long it takes (`predictions`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from msgspec import Struct

from et_sim.workloads import Model, Plan, read_model
from et_sim.workloads.models.model import Attention, FeedForward

TIME, TIME_MS = "iteration_time_s", "measured_ms"
RECOMPUTED = {"full": "full", "attn_only": "selective", "none": "none"}
ALL_AT_ONCE = 10**9  # bytes of gradients that are reduced together


class Iteration(Struct, frozen=True):
    """An iteration that was measured."""

    label: str
    hardware: str
    model: Model
    plan: Plan
    measured_s: float


def iterations_of(table: dict[str, Any]) -> Iterator[tuple[int, Iteration | None]]:
    """The rows of a table, by number; None: it does not tell how long an iteration took."""
    for number, values in enumerate(table["rows"], 1):
        row = values if isinstance(values, dict) else dict(zip(table["columns"], values, strict=True))
        is_timed, hardware = TIME in row or TIME_MS in row, str(table.get("hardware") or "")
        yield number, _iteration({**table.get("defaults", {}), **row}, hardware) if is_timed else None


def _iteration(row: dict[str, Any], hardware: str) -> Iteration:
    seconds = row[TIME] if TIME in row else row[TIME_MS] / 1000
    model, plan = _model(row), _plan(row)
    text = f"{model.name}, TP {plan.tensor} x PP {plan.pipeline} x DP {plan.data}, batch {plan.batch}"
    if "mode" in row:
        text = f"{row['model']}, {row['mode']}"
    return Iteration(text, str(row.get("gpu", hardware)), model, plan, float(seconds))


def _model(row: dict[str, Any]) -> Model:
    sizes = {**row, **row.get("model_dims", {}).get(row.get("model"), {})}
    sequence = int(row["seq_len"] if "seq_len" in row else row["sequence"])
    if "hidden" not in sizes:
        known = read_model(str(row["model"]).replace("_", "-"))
        return replace(known, layers=row["layers"], sequence=sequence)
    name = f"{row['params_B']:g}B" if "params_B" in row else f"width {sizes['hidden']}"
    name = str(row.get("model", name))
    decoder_model = decoder(
        name, sizes["hidden"], sizes["heads"], sizes["layers"], sequence, sizes["vocab"], sizes.get("ffn")
    )
    return replace(decoder_model, has_dropout=row.get("sharding") != "FULL_SHARD")


def decoder(
    name: str, hidden: int, heads: int, layers: int, sequence: int, vocabulary: int, inner: Any = None
) -> Model:
    """A GPT of these dimensions."""
    width = inner if isinstance(inner, int) else 4 * hidden
    return Model(
        name,
        "dimensions of the table",
        hidden,
        layers,
        vocabulary,
        sequence,
        Attention(heads, heads, hidden // heads, has_bias=True, has_output_bias=True),
        FeedForward(width, is_gated=False, has_bias=True),
        positions=sequence,
        is_tied=True,
        norm_vectors=2,
        has_dropout=True,
    )


def _plan(row: dict[str, Any]) -> Plan:
    shards = row.get("sharding") == "FULL_SHARD"
    data = row["gpus"] if shards else row["dp"]
    batch, chunks = row["micro_batch"], row.get("interleave", 1)
    micro_batches = row.get("grad_accum") or row.get("micro_batches")
    tensor = row.get("tp", 1)
    recomputes = row.get("act_ckpt", row.get("activation_checkpointing", False))
    is_deepspeed = "DeepSpeed" in row.get("framework", "")
    gradient_bytes = 2 if shards or is_deepspeed else 4
    if not micro_batches and row["global_batch"] % (data * batch):
        raise ValueError(f"global_batch {row['global_batch']} is no multiple of {data} x {batch}")
    plan = Plan(
        tensor=tensor,
        pipeline=row.get("pp", 1),
        context=row.get("cp", 1),
        expert=row.get("ep", 1),
        data=data,
        batch=batch,
        micro_batches=micro_batches or row["global_batch"] // data // batch,
        chunks=chunks,
        schedule="interleaved" if chunks > 1 else "1f1b",
        recompute=RECOMPUTED.get(row.get("recompute", ""), "full" if recomputes else "none"),
        overlap_pipeline=False,
        scatter_gather=tensor > 1 and row.get("tp_comm") != "rs_ag",
        overlap_tensor=not is_deepspeed,
        sequence_parallel=row.get("tp_comm") == "rs_ag",
        fused_attention="attention" in row or "measured_ms" in row,
        zero=3 if shards else 0,
        gradient_bytes=gradient_bytes,
        sum_bytes=gradient_bytes,
        bucket=ALL_AT_ONCE if row.get("gradient_bucketing") is False else 25 << 20,
    )
    if plan.ranks != row.get("gpus", plan.ranks):
        raise ValueError(f"gpus is {row['gpus']}, and the plan has {plan.ranks} ranks")
    return plan
