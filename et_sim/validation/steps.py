"""Files of training steps: a CSV with a step per line, its plan in columns.

`plan` is a text such as `tp4 pp8x5 cp1 dp2 ep1 zero1 none`: ranks of each axis, parts of the model on each
stage after the x, the ZeRO stage, and the recomputation. `model` is a file of the folder `models` beside the
CSV, else a preset. The columns `software`, `hardware` and `note` are texts (`phrases`). Columns with commands
are not used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from et_sim.basics.errors import EtSimError
from et_sim.documents.reading import csv_rows
from et_sim.validation.networks import node_of
from et_sim.validation.phrases import (
    NamedProduct,
    fitting,
    machine_of_source,
    phrases,
    power_of,
    read_note,
    software_of,
    unknown_software,
)
from et_sim.validation.recipes import recipe_of
from et_sim.validation.row import Row, TrainingStep, microseconds, reason, refused
from et_sim.workloads import Model, Plan, read_model
from et_sim.workloads.models.configuration import preset_names
from et_sim.workloads.training.plan import plan_of
from et_sim.workloads.training.recomputation import NOTHING

NEEDED = (
    *("hardware", "model", "machine", "gpus", "plan", "micro_batch", "micro_batches"),
    *("seq", "precision", "measured_s"),
)
MODELS = "models"  # the folder beside the file
_AXES = {"tp": "tensor", "pp": "pipeline", "cp": "context", "dp": "data", "ep": "expert"} | {
    "etp": "expert_tensor",
    "zero": "zero",
}
_WORD = re.compile(r"([a-z]+)(\d{1,9})(?:x(\d{1,9}))?", re.ASCII)
_NOTHING_AGAIN = re.compile(r"\bno recompute\b", re.IGNORECASE)
_USUAL = NamedProduct([], "", plan={"sequence_parallel": True})
_NODE = 8  # devices of a node, for software that shares weights within nodes


def is_steps(columns: list[str]) -> bool:
    """Check whether a CSV with these columns holds training steps."""
    return {*NEEDED} <= {*columns}


def read_steps(path: Path, text: str) -> Iterator[Row]:
    """Yield a row for each line; one that cannot be predicted has a reason."""
    for number, (at, line) in enumerate(csv_rows(text, str(path)), 1):
        try:
            yield step_of(path, number, line)
        except (EtSimError, KeyError, TypeError, ValueError, ArithmeticError) as error:
            why = f"{path.name}: line {at}: {reason(error)}"
            yield refused(path.stem, number, why, str(line.get("hardware") or ""))


def step_of(path: Path, number: int, line: Mapping[str, Any]) -> Row:
    """Return the row of a line; raise an error for one that cannot be predicted."""
    if None in line or None in line.values():
        raise ValueError(f"the line has {'more' if None in line else 'fewer'} values than the first one")
    stated, source = line.get("software", ""), line.get("source", "")
    product = software_of(stated, source)
    note = read_note(line.get("note", ""), line["model"].lower())
    model = replace(_model(path.parent, line["model"]), sequence=_count(line, "seq"))
    machine = machine_of_source(source, line["machine"])
    plan, of_plan = _plan(line, model, product or _USUAL, note.plan, machine)
    if plan.ranks != _count(line, "gpus"):
        raise ValueError(f"gpus is {line['gpus']}, and the plan has {plan.ranks} ranks")
    remarks = (*(() if product else (unknown_software(stated),)), *note.remarks, *of_plan)
    measured_us = _measured_us(line)
    label = (
        f"{model.name}, {line['plan']}, batch {plan.batch} x {plan.micro_batches},"
        f" {model.sequence:,} tokens, {line['precision']}"
    )
    name = product.software if product else ""
    job = TrainingStep(
        label, line["hardware"], model, plan, measured_us / 1e6, name, power_of(line["hardware"])
    )
    return Row(
        path.stem,
        number,
        line["hardware"],
        "",
        "iteration",
        f"{plan.ranks} GPUs",
        label,
        measured_us,
        job,
        machine=machine,
        remarks=remarks,
    )


@cache
def _model(folder: Path, name: str) -> Model:
    beside = folder / MODELS / f"{name}.json"
    if not beside.is_file():
        return read_model(name)
    model = read_model(str(beside))
    known = read_model(name) if name in preset_names() else None
    return known if known is not None and _has_dimensions_of(model, known) else model


def _has_dimensions_of(model: Model, known: Model) -> bool:
    """Check whether a file has the dimensions of a model with experts that et-sim describes.

    Files of collections write such models as Mixtral, without their biases, norms and limits.
    """
    return model.experts is not None and _dimensions(model) == _dimensions(known)


def _dimensions(model: Model) -> tuple[object, ...]:
    attention, experts = model.attention, model.experts
    chosen = (experts.count, experts.chosen, experts.expert.width) if experts else None
    heads = (attention.heads, attention.key_heads, attention.head_size)
    return model.hidden, model.layers, model.vocabulary, heads, chosen


def _plan(
    line: Mapping[str, Any], model: Model, product: NamedProduct, note: Mapping[str, Any], machine: str
) -> tuple[Plan, tuple[str, ...]]:
    """Return the plan of a row, and remarks about it."""
    known = phrases().precisions
    if line["precision"] not in known:
        raise ValueError(f"precision is {line['precision']!r} (known: {', '.join(known)})")
    stated = {
        **axes_of_plan(line["plan"]),
        "batch": _count(line, "micro_batch"),
        "micro_batches": _count(line, "micro_batches"),
        "products": known[line["precision"]],
        **note,
    }
    recipe = recipe_of(product.software, line.get("software", ""), model.name, line["hardware"], stated)
    if stated.get("recompute") == NOTHING and not _NOTHING_AGAIN.search(line.get("note", "")):
        # Tables without a column for it have "none", which must not override the recipe.
        del stated["recompute"]
    values = {**product.plan, **recipe, **stated}
    if product.software:
        values["software"] = product.software
    if values.get("expert", 1) > 1 and machine:
        values["node_ranks"] = node_of(machine, _count(line, "gpus"))
    parts = values.get("pipeline", 1) * values.get("chunks", 1)
    plan = plan_of({**fitting(values, _NODE), "stage_layers": _shares(model.layers, parts)})
    if (ranks := recipe.get("expert", plan.expert)) == plan.expert:
        return plan, ()
    return plan, (f"ep is {plan.expert}, but {ranks} in the published recipe of this batch",)


def axes_of_plan(text: str) -> dict[str, Any]:
    """Return the fields of a plan that the text of a plan gives."""
    values: dict[str, Any] = {}
    for word in text.split():
        match = _WORD.fullmatch(word)
        if match is not None and (match[1] not in _AXES or (match[3] and match[1] != "pp")):
            raise ValueError(f"the plan {text!r} has the word {word!r} (known: {', '.join(_AXES)})")
        name = "recompute" if match is None else _AXES[match[1]]
        if name in values:
            raise ValueError(f"the plan {text!r} has a second value of {name}, {word!r}: leave one out")
        if match is None:
            values[name] = word
        else:
            values[name] = int(match[2])
            if match[3] and int(match[3]) > 1:
                values |= {"chunks": int(match[3]), "schedule": "interleaved"}
    return values


def _shares(layers: int, parts: int) -> tuple[int, ...]:
    """Return the layers of each part of the pipeline if they are unequal; the first parts have more."""
    each, more = divmod(layers, parts)
    return tuple(each + (part < more) for part in range(parts)) if more else ()


def _measured_us(line: Mapping[str, Any]) -> float:
    text = line["measured_s"]
    try:
        return microseconds(float(text) * 1e6)
    except ValueError:
        raise ValueError(f"measured_s is {text!r} (allowed: seconds, more than 0)") from None


def _count(line: Mapping[str, Any], column: str) -> int:
    text = line[column]
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) < 10**9):
        raise ValueError(f"{column} is {text!r} (allowed: an integer from 1 to 10^9)")
    return int(text)
