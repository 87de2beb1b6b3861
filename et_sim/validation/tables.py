"""Tables of measurements in JSON: of collectives, or of training steps.

Collectives have the key `collective` and rows of bytes and microseconds; training steps have the `columns` of
a model and a plan. Settings that a table of training steps does not state are those of its framework:
Megatron sums gradients in fp32, DeepSpeed in 16 bits, and its Megatron exchanges gradients of inputs before
it continues; stages of both wait for messages that they send and receive, and tensor-parallel ranks send a
share each. Jobs of FSDP have no dropout. Activations are recomputed if a column or the table's defaults state
it. A row that cannot be read has a reason, and the others are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import structs
from msgspec.structs import replace

from et_sim.basics.errors import EtSimError, InputError
from et_sim.basics.units import plural
from et_sim.documents.keys import show
from et_sim.documents.reading import parse_json
from et_sim.validation.networks import nodes_in_words
from et_sim.validation.phrases import (
    fitting,
    has_process_per_node,
    power_of,
    read_note,
    software_of,
    unknown_software,
)
from et_sim.validation.row import (
    DEGRADED,
    MIB,
    Collective,
    Row,
    TrainingStep,
    microseconds,
    reason,
    refused,
)
from et_sim.workloads import Model, Plan, read_model
from et_sim.workloads.models.model import Attention, FeedForward
from et_sim.workloads.software import read_software

INFERRED = "inferred"  # mark of an algorithm that was not forced
NAMES = {"alltoall": "all_to_all", "sendrecv": "ring_send_receive"}  # name in nccl-tests: our name

MOST = 2**53  # limit of whole numbers in a table
TEXTS = (
    *("id", "hardware", "interconnect", "collective", "algo_forced", "dtype", "gpu", "model", "mode"),
    "quality",
    *("recompute", "tp_comm", "sharding", "framework"),
)
COUNTS = (
    *(
        "nodes",
        "gpus",
        "gpus_per_process",
        "hidden",
        "ffn",
        "heads",
        "layers",
        "vocab",
        "seq_len",
        "sequence",
        "bytes",
    ),
    *(
        "tp",
        "pp",
        "cp",
        "ep",
        "dp",
        "global_batch",
        "micro_batch",
        "micro_batches",
        "grad_accum",
        "interleave",
    ),
)


def _checked(table: dict[str, Any]) -> dict[str, Any]:
    """Return the given values of a table or row; raise ValueError for one that its key does not allow."""
    given = {key: value for key, value in table.items() if value is not None}
    for key, value in given.items():
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if key in TEXTS and not isinstance(value, str):
            raise ValueError(f"{key} is {show(value)} (allowed: a text)")
        is_in_words = key == "ffn" and isinstance(value, str)  # such as "4 x hidden", the default
        if key in COUNTS and not is_in_words and not (is_whole and 1 <= value <= MOST):
            raise ValueError(f"{key} is {show(value)} (allowed: an integer from 1 to 2^53)")
    return given


def read_tables(path: Path, text: str) -> Iterator[Row]:
    """Yield the rows of all tables."""
    content = parse_json(text, str(path), InputError)
    if isinstance(content, dict) and isinstance(content.get("meta"), dict):
        content = [{"id": path.stem, **content["meta"], "rows": content.get("rows", [])}]
    if not isinstance(content, list) or not all(isinstance(table, dict) for table in content):
        raise InputError(
            "the file is not a list of tables", place=str(path), remedy="name a file of measurements"
        )
    for number, table in enumerate(content, 1):
        yield from _rows(table, str(table.get("id", number)))


def _rows(table: dict[str, Any], name: str) -> Iterator[Row]:
    read = _collective if "collective" in table else _timed_iteration
    hardware, rows = table.get("hardware"), table.get("rows")
    hardware = hardware if isinstance(hardware, str) else ""
    if not isinstance(rows, list) or not rows:
        yield refused(name, 0, f"table {name}: rows is {show(rows)} (allowed: a list)", hardware)
        return
    for number, row in enumerate(rows, 1):
        try:
            yield read(_checked(table), name, number, row)
        except (EtSimError, KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            yield refused(name, number, f"table {name}, row {number}: {reason(error)}", hardware)


def _collective(table: dict[str, Any], name: str, number: int, row: Any) -> Row:
    kind, gpus, nodes = NAMES.get(table["collective"], table["collective"]), table["gpus"], table.get("nodes")
    nodes = nodes or nodes_in_words(str(table.get("hardware") or ""), gpus) or 1
    forced = str(table.get("algo_forced") or "").lower()
    forced = "" if INFERRED in forced else forced
    if gpus < 2:
        raise ValueError(f"gpus is {gpus} (allowed: 2 or more)")
    if gpus % nodes:
        raise ValueError(f"gpus is {gpus}, which is not a multiple of {nodes} nodes")
    if not isinstance(row, list) or len(row) < 2:
        raise ValueError(f"the row is {show(row)} (allowed: a list of bytes and microseconds)")
    size, time, *_ = row
    _checked({"bytes": size})
    size_class = "< 1 MiB" if size < MIB else "< 64 MiB" if size < 64 * MIB else ">= 64 MiB"
    if table.get("quality") == DEGRADED:
        size_class += f", {DEGRADED}"
    return Row(
        name,
        number,
        str(table.get("hardware") or ""),
        "" if nodes == 1 else str(table.get("interconnect") or ""),
        kind,
        size_class,
        f"{kind} of {size:,} B on {gpus}",
        microseconds(time),
        Collective(
            kind,
            int(size),
            gpus,
            nodes,
            str(table.get("dtype") or ""),
            forced,
            gpus_per_process=_gpus_per_process(table, gpus, nodes),
        ),
    )


def _gpus_per_process(table: dict[str, Any], gpus: int, nodes: int) -> int:
    """Return the GPUs that a process of the measuring program has, as the table or its program states."""
    node = gpus // nodes
    given = int(table.get("gpus_per_process") or 0)
    if given and node % given:
        raise ValueError(f"gpus_per_process is {given}, which does not divide the {node} GPUs of a node")
    return given or (node if has_process_per_node(str(table.get("source") or "")) else 1)


def _timed_iteration(table: dict[str, Any], name: str, number: int, row: Any) -> Row:
    iteration, remarks = _iteration_of(table, row)
    if iteration is None:
        return refused(name, number, f"table {name} has no time of an iteration", table.get("hardware", ""))
    return Row(
        name,
        number,
        iteration.hardware,
        str(table.get("interconnect") or ""),
        "iteration",
        f"{iteration.plan.ranks} GPUs",
        iteration.label,
        microseconds(iteration.measured_s * 1e6),
        iteration,
        remarks=remarks,
    )


TIME, TIME_MS = "iteration_time_s", "measured_ms"
RECOMPUTED = {"full": "full", "attn_only": "selective", "none": "none"}
ALL_AT_ONCE = 10**9  # bucket that holds all gradients
SHARDING: dict[str, dict[str, Any]] = {  # fields of a plan, by strategy of FSDP
    "FULL_SHARD": {"zero": 3},
    "SHARD_GRAD_OP": {"zero": 2},
    "HYBRID_SHARD": {"zero": 3, "shard": "node"},
    "NO_SHARD": {"zero": 0},
}
NODE = 8  # devices of a node, if the table does not state them


def iterations_of(table: dict[str, Any]) -> Iterator[tuple[int, TrainingStep | None]]:
    """Yield the rows of a table by number; None: the row has no time."""
    for number, values in enumerate(table["rows"], 1):
        yield number, _iteration_of(_checked(table), values)[0]


def _iteration_of(table: dict[str, Any], values: Any) -> tuple[TrainingStep | None, tuple[str, ...]]:
    """Return the training step of a row, and remarks on its description."""
    given = values if isinstance(values, dict) else _by_column(table["columns"], values)
    if TIME not in given and TIME_MS not in given:
        return None, ()
    row = _checked({**table.get("defaults", {}), **given})
    if TIME not in row and TIME_MS not in row:
        raise ValueError(f"{TIME if TIME in given else TIME_MS} is null (allowed: more than 0)")
    seconds = row[TIME] if TIME in row else row[TIME_MS] / 1000
    stated = str(table.get("software") or row.get("framework") or "")
    named = stated or f"{table.get('id', '')} {table.get('source', '')}"
    product = software_of(named, str(table.get("source", "")))
    meaning = read_note(str(table.get("software") or "").partition(";")[2], str(row.get("model", "")))
    model = _model(row)
    if meaning.dense_layers is not None and model.experts is not None:
        experts = structs.replace(model.experts, dense_layers=meaning.dense_layers)
        model = replace(model, experts=experts)
    usual = product.plan if product is not None and table.get("software") else {}
    plan = _plan(row, {**usual, **meaning.plan}, product.software if product else "")
    label = f"{model.name}, TP {plan.tensor} x PP {plan.pipeline} x DP {plan.data}, batch {plan.batch}"
    if "mode" in row:
        label = f"{row['model']}, {row['mode']}"
    hardware = str(row.get("gpu", table.get("hardware") or ""))
    name, power = product.software if product else "", power_of(hardware)
    remarks = meaning.remarks if product else (unknown_software(stated), *meaning.remarks)
    return TrainingStep(label, hardware, model, plan, float(seconds), name, power), remarks


def _by_column(columns: Any, values: Any) -> dict[str, Any]:
    if len(columns) != len(values):
        raise ValueError(f"the row has {plural(len(values), 'value')}, and columns names {len(columns)}")
    return dict(zip(columns, values, strict=True))


def _model(row: dict[str, Any]) -> Model:
    sizes = {**row, **row.get("model_dims", {}).get(row.get("model"), {})}
    sequence = int(row["seq_len"] if "seq_len" in row else row["sequence"])
    if "hidden" not in sizes:
        known = _read_model(str(row["model"]).replace("_", "-"))
        return replace(known, layers=row.get("layers", known.layers), sequence=sequence)
    name = f"{row['params_B']:g}B" if "params_B" in row else f"width {sizes['hidden']}"
    name = str(row.get("model", name))
    decoder_model = decoder(
        name, sizes["hidden"], sizes["heads"], sizes["layers"], sequence, sizes["vocab"], sizes.get("ffn")
    )
    return replace(decoder_model, has_dropout=row.get("sharding") not in SHARDING)


@cache
def _read_model(name: str) -> Model:
    return read_model(name)


def decoder(
    name: str, hidden: int, heads: int, layers: int, sequence: int, vocabulary: int, inner: Any = None
) -> Model:
    """Return a GPT of these dimensions."""
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


def _plan(row: dict[str, Any], usual: dict[str, Any], software: str) -> Plan:
    """Return the plan of a row; `usual` are further fields that its product leads to."""
    sharding = row.get("sharding")
    if sharding is not None and sharding not in SHARDING:
        raise ValueError(f"sharding is {sharding!r} (known: {', '.join(SHARDING)})")
    again = row.get("recompute")
    if again is not None and again not in RECOMPUTED:
        raise ValueError(f"recompute is {again!r} (known: {', '.join(RECOMPUTED)})")
    data = row["gpus"] if sharding else row["dp"]
    batch, chunks = row["micro_batch"], row.get("interleave", 1)
    micro_batches = row.get("grad_accum") or row.get("micro_batches")
    if not micro_batches and row["global_batch"] % (data * batch):
        raise ValueError(f"global_batch {row['global_batch']} is not a multiple of {data} x {batch}")
    recomputes = row.get("act_ckpt", row.get("activation_checkpointing", False))
    is_deepspeed = "DeepSpeed" in row.get("framework", "")
    gradient_bytes = 2 if sharding or is_deepspeed else 4
    described = read_software(software).plan_options if software else {}
    values = {
        "software": software,
        "tensor": row.get("tp", 1),
        "pipeline": row.get("pp", 1),
        "context": row.get("cp", 1),
        "expert": row.get("ep", 1),
        "data": data,
        "batch": batch,
        "micro_batches": micro_batches or row["global_batch"] // data // batch,
        "chunks": chunks,
        "schedule": "interleaved" if chunks > 1 else "1f1b",
        "recompute": RECOMPUTED[again] if again else "full" if recomputes else "none",
        "overlap_pipeline": False,
        "scatter_gather": row.get("tp_comm") != "rs_ag" and not usual.get("sequence_parallel"),
        "overlap_tensor": not is_deepspeed and described.get("overlap_tensor", True),
        "sequence_parallel": row.get("tp_comm") == "rs_ag",
        "fused_attention": "attention" in row or "measured_ms" in row,
        "gradient_bytes": gradient_bytes,
        "sum_bytes": gradient_bytes,
        "bucket": ALL_AT_ONCE if row.get("gradient_bucketing") is False else 25 << 20,
        **usual,
        **SHARDING.get(sharding or "", {}),
    }
    plan = Plan(**fitting(values, row.get("gpus_per_node", NODE)))
    if plan.ranks != row.get("gpus", plan.ranks):
        raise ValueError(f"gpus is {row['gpus']}, and the plan has {plan.ranks} ranks")
    return plan
