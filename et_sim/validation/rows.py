"""Tables of measurements, read: each row says what was measured, where, and how long it took.

A table is a CSV of kernels (`table,shape,us`), with what is known of it in a JSON file of the same name
beside it; or a JSON file of tables: of collectives (`collective`, rows of bytes and microseconds) or of
training iterations (`columns` of a model and a plan).

What a table of iterations does not say is taken as its framework does it: Megatron sums gradients in fp32,
DeepSpeed in 16 bits, and its Megatron exchanges gradients of inputs before it goes on; stages of both wait
for what they send and receive, of which tensor-parallel ranks send a share each. Jobs of FSDP have no
dropout. Activations are worked out again where a column or the table's defaults say so.

How far predictions are from measurements is given in percent: E is 100 (exp(mean |ln(predicted / measured)|)
- 1), G the geometric mean of the relative errors, and bias the geometric mean of predicted / measured, less
one. Not here: what is predicted (`predictions`).
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from msgspec import Struct

from et_sim.basics.errors import InputError, UsageError
from et_sim.documents.keys import show
from et_sim.documents.reading import parse_json
from et_sim.machine.accuracy import LARGE_SIDE, LONG_SEQUENCE
from et_sim.validation.included import included_kernels
from et_sim.workloads import Model, Plan, read_model
from et_sim.workloads.models.model import Attention, FeedForward

MIB = 1 << 20
INFERRED = "inferred"  # of an algorithm that was not forced
NAMES = {"alltoall": "all_to_all", "sendrecv": "ring_send_receive"}  # of nccl-tests, and ours


MOST = 2**53  # of a whole number in a table
TEXTS = (
    *("id", "hardware", "interconnect", "collective", "algo_forced", "dtype", "gpu", "model", "mode"),
    *("recompute", "tp_comm", "sharding", "framework"),
)
COUNTS = (
    *("nodes", "gpus", "hidden", "ffn", "heads", "layers", "vocab", "seq_len", "sequence", "bytes"),
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
    """Return what is given of a table or a row; raise ValueError for a value that its key cannot have."""
    given = {key: value for key, value in table.items() if value is not None}
    for key, value in given.items():
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if key in TEXTS and not isinstance(value, str):
            raise ValueError(f"{key} is {show(value)} (allowed: a text)")
        is_in_words = key == "ffn" and isinstance(value, str)  # such as "4 x hidden", which is the usual one
        if key in COUNTS and not is_in_words and not (is_whole and 1 <= value <= MOST):
            raise ValueError(f"{key} is {show(value)} (allowed: an integer from 1 to 2^53)")
    return given


class Kernel(Struct, frozen=True):
    """A kernel alone, or with others that its table's times include."""

    shape: str
    datatype: str
    included: tuple[str, ...] = ()


class Collective(Struct, frozen=True):
    """A collective by itself; nccl-tests counts its bytes."""

    kind: str
    bytes: int
    gpus: int
    nodes: int = 1
    datatype: str = ""
    algorithm: str = ""  # that the library was forced to take


class Row(Struct, frozen=True):
    """A measurement."""

    table: str
    number: int  # in the table, from 1
    hardware: str
    network: str  # between nodes, in words
    kind: str
    size_class: str
    what: str
    measured_us: float | None  # None: the table has no time, and there is nothing to predict
    job: Kernel | Collective | Iteration | None


def shipped() -> list[Path]:
    """The measurements that come with et-sim."""
    folder = Path(str(files("et_sim.validation") / "measurements"))
    return [folder / name for name in ("kernels.csv", "collectives.json", "iterations.json")]


def read_rows(path: Path) -> list[Row]:
    """All rows of a file."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}", remedy="name a file of measurements") from error
    rows = list(_kernels(path, text) if path.suffix.lower() == ".csv" else _tables(path, text))
    if not rows:
        raise UsageError(f"{path} has no row", remedy="name a file of measurements")
    return rows


def _kernels(path: Path, text: str) -> Iterator[Row]:
    known: dict[str, Any] = {}
    about = path.with_suffix(".json")
    if about.exists():
        known = parse_json(about.read_text(encoding="utf-8", errors="replace"), str(about), InputError)
        if not isinstance(known, dict) or not all(isinstance(row, dict) for row in known.values()):
            remedy = 'write {"TABLE": {"gpu": …, "dtype": …}}'
            raise InputError("this says nothing of tables", place=str(about), remedy=remedy)
    numbers: dict[str, int] = {}
    for row in csv.DictReader(io.StringIO(text)):
        if row.keys() != {"table", "shape", "us"} or None in row.values():
            remedy = "kernels have the columns table, shape and us"
            raise InputError("the columns are others", place=str(path), remedy=remedy)
        table, shape = row["table"], row["shape"]
        numbers[table] = numbers.get(table, 0) + 1
        facts = known.get(table, {})
        kind = shape.partition(" ")[0]
        yield Row(
            table,
            numbers[table],
            str(facts.get("gpu", "")),
            "",
            kind,
            size_of_kernel(kind, shape),
            shape,
            _time(row["us"], path, table, numbers[table]),
            Kernel(shape, str(facts.get("dtype", "")), included_kernels(facts, shape)),
        )


def size_of_kernel(kind: str, shape: str) -> str:
    """The class of size of a kernel's shape; "all" where its kind has one only."""
    numbers = [
        int(word) for word in shape.split()[1:] if word.isascii() and word.isdigit() and len(word) < 20
    ]
    if kind == "gemm" and len(numbers) >= 3:
        is_large = min(numbers[:3]) >= LARGE_SIDE
        return f"sides >= {LARGE_SIDE}" if is_large else f"a side < {LARGE_SIDE}"
    if kind.startswith("attention") and len(numbers) >= 4:
        return f"tokens >= {LONG_SEQUENCE}" if numbers[3] >= LONG_SEQUENCE else f"tokens < {LONG_SEQUENCE}"
    return "all"


def _tables(path: Path, text: str) -> Iterator[Row]:
    content = parse_json(text, str(path), InputError)
    if isinstance(content, dict) and isinstance(content.get("meta"), dict):
        content = [{"id": path.stem, **content["meta"], "rows": content.get("rows", [])}]
    if not isinstance(content, list) or not all(isinstance(row, dict) for row in content):
        raise InputError("this is no list of tables", place=str(path), remedy="name a file of measurements")
    for number, table in enumerate(content, 1):
        try:
            yield from _collectives(path, table) if "collective" in table else _iterations(path, table)
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            problem = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            place = f"{path}: table {table.get('id', number)}"
            raise InputError(problem, place=place, remedy="docs/accuracy.md says what tables hold") from error


def _collectives(path: Path, given: dict[str, Any]) -> Iterator[Row]:
    table = _checked(given)
    kind = NAMES.get(table["collective"], table["collective"])
    nodes = int(table.get("nodes", 1))
    network = str(table.get("interconnect") or "") if nodes > 1 else ""
    forced = str(table.get("algo_forced") or "").lower()
    forced = "" if INFERRED in forced else forced
    if table["gpus"] < 2:
        raise ValueError(f"gpus is {table['gpus']}")
    for number, (size, microseconds, *_) in enumerate(table["rows"], 1):
        _checked({"bytes": size})
        group = "< 1 MiB" if size < MIB else "< 64 MiB" if size < 64 * MIB else ">= 64 MiB"
        yield Row(
            table["id"],
            number,
            str(table.get("hardware") or ""),
            network,
            kind,
            group,
            f"{kind} of {size:,} B on {table['gpus']}",
            _time(microseconds, path, table["id"], number),
            Collective(kind, int(size), table["gpus"], nodes, str(table.get("dtype") or ""), forced),
        )


def _iterations(path: Path, given: dict[str, Any]) -> Iterator[Row]:
    table = _checked(given)
    for number, iteration in iterations_of(table):
        if iteration is None:
            yield Row(table["id"], number, str(table.get("hardware") or ""), "", "", "", "", None, None)
            continue
        yield Row(
            table["id"],
            number,
            iteration.hardware,
            str(table.get("interconnect") or ""),
            "iteration",
            f"{iteration.plan.ranks} GPUs",
            iteration.label,
            _time(iteration.measured_s * 1e6, path, table["id"], number),
            iteration,
        )


def _time(value: Any, path: Path, table: str, number: int) -> float:
    try:
        time = float(value)
    except (TypeError, ValueError):
        time = 0.0
    if not 0 < time < 1e15:
        raise InputError(
            f"the time is {value!r}",
            place=f"{path}: table {table}, row {number}",
            remedy="give microseconds, more than 0",
        )
    return time


LEAST = 1e-6  # of a relative error in the geometric mean: an exact one would make it nothing


class Errors(Struct, frozen=True):
    """Of some rows."""

    rows: int
    e: float
    g: float
    mape: float
    bias: float
    largest: float

    @staticmethod
    def of(ratios: Sequence[float]) -> Errors:
        """Of predicted by measured, one row at least."""
        count, logarithms = len(ratios), [math.log(ratio) for ratio in ratios]
        relative = [abs(ratio - 1) for ratio in ratios]
        return Errors(
            count,
            100 * math.expm1(sum(map(abs, logarithms)) / count),
            100 * math.exp(sum(math.log(max(error, LEAST)) for error in relative) / count),
            100 * sum(relative) / count,
            100 * math.expm1(sum(logarithms) / count),
            100 * max(relative),
        )


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
        values = _checked({**table.get("defaults", {}), **row})
        yield number, _iteration(values, hardware) if is_timed else None


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
