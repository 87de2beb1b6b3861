"""Workloads by their options: `make: llm` with a model and a plan, or a microbenchmark.

The keys are the options of `et-sim make`, without the leading hyphens.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.errors import InputError, UsageError, did_you_mean
from et_sim.basics.units import parse_bytes
from et_sim.documents.keys import (
    Key,
    Remarks,
    Section,
    Slot,
    ValueKind,
    check_names,
    key,
    keys_by_field,
    keys_of,
    read,
)
from et_sim.documents.kinds import SIZE, count, text
from et_sim.machine.presets import Preset, preset
from et_sim.recipes.servings import DECODE_PLAN, PLAN, PLANNED, SERVING, ServingRecipe, beside
from et_sim.workloads.microbenchmarks import KINDS, make_microbenchmark
from et_sim.workloads.training.plan import Plan, naming_fields, plan_of
from et_sim.workloads.training.value_types import fields_of_machine

if TYPE_CHECKING:
    from et_sim.trace import Workload
    from et_sim.workloads.models.model import Model

LLM, CNN, DLRM = "llm", "cnn", "dlrm"
JOBS = (LLM, CNN, DLRM)
MAKE = "make"
IMAGES = 32  # of a rank, as in et-sim make
_PLACE, _MODEL = "workload", "the name of a preset, or a file"


def _bytes(slot: Slot, value: Any) -> int:
    try:
        return parse_bytes(value)
    except UsageError:
        raise slot.refusal(value) from None


BYTES = ValueKind("bytes", SIZE.allowed, _bytes)


class _Microbenchmark(Struct, frozen=True):
    make: str = text("The collective.", required=True)
    ranks: int = count("The number of ranks.", required=True)
    size: int = key(BYTES, "The size of each operation.", 0, name="bytes")
    repeat: int = count("The number of operations.", 1)
    compute_us: int = count("The time of a kernel before each operation.", 0, unit="us")


class _Training(Struct, frozen=True):
    make: str = text("`cnn` or `dlrm`.", required=True)
    model: str | None = text("The model.", None, form=_MODEL)
    plan: dict[str, Any] = key(PLANNED, "The plan of parallelism.", {})


class _LanguageModel(Struct, frozen=True):
    make: str = text("`llm`.", required=True)
    model: str = text("The model.", required=True, form=_MODEL)
    plan: dict[str, Any] = key(PLANNED, "The plan of parallelism.", {})
    layers: int | None = count("The number of layers, in place of the model's.", None, minimum=1)
    sequence: int | None = count("The sequence length, in place of the model's.", None, minimum=1)
    vocabulary: int | None = count("The vocabulary, in place of the model's.", None, minimum=1)


_FORMS = {LLM: _LanguageModel, CNN: _Training, DLRM: _Training, SERVING: ServingRecipe}


def recipe_keys(recipe: Mapping[str, Any]) -> tuple[Key, ...]:
    """Return the possible keys of a recipe of its kind."""
    return keys_of(_FORMS.get(recipe.get(MAKE, ""), _Microbenchmark))


def check_recipe(recipe: Mapping[str, Any]) -> Section:
    """Refuse an invalid recipe, whatever its values are."""
    kind = recipe.get(MAKE)
    known: tuple[str, ...] = (*KINDS, *JOBS, SERVING)
    if kind not in known:
        remedy = did_you_mean(str(kind), known) or f"known: {', '.join(known)}"
        raise InputError(f"there is nothing called {kind!r} to make", place=_PLACE, remedy=remedy)
    section = Section(_PLACE, dict(recipe), error_type=InputError)
    check_names(section, recipe_keys(recipe), Remarks())
    for plan in (PLAN, DECODE_PLAN):
        check_names(section.entry(plan, recipe.get(plan, {})), keys_of(Plan), Remarks())
    return section


@naming_fields()
def make(recipe: Mapping[str, Any], folder: Path) -> Workload:
    """Return the workload of a recipe; files are looked up in the folder first."""
    section, kind = check_recipe(recipe), str(recipe[MAKE])
    if kind == SERVING:
        raise section.fault("serving makes no workload", "sweep or search it")
    if kind == LLM:
        from et_sim.workloads.training.step import make_training

        return make_training(*model_and_plan(recipe, folder))
    if kind not in JOBS:
        spec = read(_Microbenchmark, section, Remarks())
        size, repeat, compute_us = spec.size, spec.repeat, spec.compute_us
        return make_microbenchmark(kind, ranks=spec.ranks, size=size, repeat=repeat, compute_us=compute_us)
    job = read(_Training, section, Remarks())
    if kind == CNN:
        from et_sim.workloads.convolution import make_convolution_training, read_network

        if job.model is None:
            raise section.fault('key "model" is missing', f"allowed: {_MODEL}")
        name, network = read_network(beside(job.model, folder))
        plan = Plan(**{"micro_batches": 1, "batch": IMAGES} | job.plan)
        return make_convolution_training(network, plan, name)
    from et_sim.workloads.recommendation import USUAL, make_dlrm_training, read_dlrm

    name, model = read_dlrm(USUAL if job.model is None else beside(job.model, folder))
    return make_dlrm_training(model, Plan(**{"micro_batches": 1, "batch": model.batch} | job.plan), name)


def for_machine(recipe: Mapping[str, Any], machine: str | None) -> Mapping[str, Any]:
    """Return the recipe of a job with the fields of its plan that a machine by name decides."""
    if machine is None or recipe.get(MAKE) not in (*JOBS, SERVING):
        return recipe
    return for_preset(recipe, preset(machine))


def for_preset(recipe: Mapping[str, Any], known: Preset | None) -> Mapping[str, Any]:
    """Return the recipe of a job with the fields of its plan that a machine decides; None: no machine."""
    plan = recipe.get(PLAN, {})
    if known is None or not isinstance(plan, Mapping):
        return recipe
    keys, usual = keys_by_field(Plan), Plan()
    given = {name: plan[key.name] for name, key in keys.items() if key.name in plan}
    decided = fields_of_machine(known.node, known.peaks, given)
    more = {keys[name].name: value for name, value in decided.items() if value != getattr(usual, name)}
    return {**recipe, PLAN: {**more, **plan}} if more else recipe


def is_serving(recipe: Any) -> bool:
    """Return whether a recipe serves requests."""
    return isinstance(recipe, Mapping) and recipe.get(MAKE) == SERVING


@naming_fields()
def read_serving(recipe: Mapping[str, Any]) -> ServingRecipe:
    """Return the recipe of a point that serves requests, checked."""
    given = {name: value for name, value in recipe.items() if value is not None}  # of axes
    return read(ServingRecipe, check_recipe(given), Remarks())


def is_language_model(recipe: Mapping[str, Any]) -> bool:
    """Return whether a recipe makes the training of a language model."""
    return recipe.get(MAKE) == LLM


@naming_fields()
def model_and_plan(recipe: Mapping[str, Any], folder: Path) -> tuple[Model, Plan]:
    """Return the language model of a recipe, and its plan."""
    return model_of(recipe, folder), plan_of_recipe(recipe)


def model_of(recipe: Mapping[str, Any], folder: Path) -> Model:
    """Return the language model of a recipe."""
    from et_sim.workloads.models.configuration import read_model, remark_on_sequence

    spec = _language_model(recipe)
    numbers = {name: getattr(spec, name) for name in ("layers", "sequence", "vocabulary") if name in recipe}
    model = read_model(beside(spec.model, folder))
    if "sequence" not in recipe and (remark := remark_on_sequence(model)):
        raise InputError(remark, place=_PLACE, remedy='add "sequence", such as 4096')
    return replace(model, **numbers)


def plan_of_recipe(recipe: Mapping[str, Any]) -> Plan:
    """Return the plan of a language model's recipe."""
    return plan_of(_language_model(recipe).plan)


def _language_model(recipe: Mapping[str, Any]) -> _LanguageModel:
    return read(_LanguageModel, check_recipe(recipe), Remarks())
