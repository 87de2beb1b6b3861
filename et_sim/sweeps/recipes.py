"""Workloads that a sweep makes for its points: `make: llm` with a model and a plan, or a microbenchmark.

The keys are the options of `et-sim make`, without the hyphens before them. Not here: how workloads are made
(`et_sim.workloads`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from et_sim.basics.errors import InputError, did_you_mean
from et_sim.basics.files import is_file
from et_sim.basics.units import parse_bytes
from et_sim.workloads.microbenchmarks import KINDS, make_microbenchmark
from et_sim.workloads.training.plan import Plan

if TYPE_CHECKING:
    from et_sim.trace import Workload
    from et_sim.workloads.models.model import Model

LLM, CNN, DLRM = "llm", "cnn", "dlrm"
JOBS = (LLM, CNN, DLRM)
MAKE, PLAN = "make", "plan"
_OF_MODELS = ("layers", "sequence", "vocabulary")
_OF_MICROBENCHMARKS = ("ranks", "bytes", "repeat", "compute-us")
IMAGES = 32  # of a rank, as et-sim make has it
_PLACE = "workload"


def keys_of(recipe: Mapping[str, Any]) -> tuple[str, ...]:
    """The keys that a recipe of its kind may have."""
    kind = recipe.get(MAKE)
    if kind not in JOBS:
        return (MAKE, *_OF_MICROBENCHMARKS)
    return (MAKE, "model", PLAN, *(_OF_MODELS if kind == LLM else ()))


def plan_keys() -> tuple[str, ...]:
    """The keys of a plan."""
    return tuple(field.metadata["flag"].lstrip("-") for field in fields(Plan))


def check_recipe(recipe: Mapping[str, Any]) -> None:
    """Refuse what is no recipe, whatever its values are."""
    kind = recipe.get(MAKE)
    known: tuple[str, ...] = (*KINDS, *JOBS)
    if kind not in known:
        remedy = did_you_mean(str(kind), known) or f"known: {', '.join(known)}"
        raise InputError(f"there is nothing called {kind!r} to make", place=_PLACE, remedy=remedy)
    _refuse_unknown(recipe, keys_of(recipe), f"a workload of kind {kind}")
    plan = recipe.get(PLAN, {})
    if not isinstance(plan, Mapping):
        raise InputError("the plan is no object", place=_PLACE, remedy="write it as in plan: {tp: 8, dp: 2}")
    _refuse_unknown(plan, plan_keys(), "a plan")


def _refuse_unknown(content: Mapping[str, Any], known: tuple[str, ...], section: str) -> None:
    for key in content:
        if key not in known:
            remedy = did_you_mean(str(key), known) or f"known: {', '.join(known)}"
            raise InputError(f"{section} has no key {key!r}", place=_PLACE, remedy=remedy)


def make(recipe: Mapping[str, Any], folder: Path) -> Workload:
    """The workload of a recipe; files that it names are looked for in the folder first."""
    check_recipe(recipe)
    kind = str(recipe[MAKE])
    if kind == LLM:
        from et_sim.workloads.training.step import make_training

        return make_training(*model_and_plan(recipe, folder))
    if kind == CNN:
        from et_sim.workloads.convolution import make_convolution_training, read_network

        name, network = read_network(_model_of(recipe, folder))
        return make_convolution_training(network, _plan(recipe, micro_batches=1, batch=IMAGES), name)
    if kind == DLRM:
        from et_sim.workloads.recommendation import USUAL, make_dlrm_training, read_dlrm

        name, model = read_dlrm(_model_of(recipe, folder) if "model" in recipe else USUAL)
        return make_dlrm_training(model, _plan(recipe, micro_batches=1, batch=model.batch), name)
    if "ranks" not in recipe:
        raise InputError(f"{kind} needs a number of ranks", place=_PLACE, remedy="add ranks")
    return make_microbenchmark(
        kind,
        ranks=_whole(recipe, "ranks", 0),
        size=parse_bytes(recipe.get("bytes", 0)),
        repeat=_whole(recipe, "repeat", 1),
        compute_us=_whole(recipe, "compute-us", 0),
    )


def is_language_model(recipe: Mapping[str, Any]) -> bool:
    """Whether it makes the training of one."""
    return recipe.get(MAKE) == LLM


def model_and_plan(recipe: Mapping[str, Any], folder: Path) -> tuple[Model, Plan]:
    """The language model of a recipe, and its plan."""
    from et_sim.workloads.models.configuration import read_model

    check_recipe(recipe)
    changes: dict[str, Any] = {name: _whole(recipe, name, 1) for name in _OF_MODELS if name in recipe}
    for name, value in changes.items():
        if value < 1:
            raise InputError(f"{name} is {value}", place=_PLACE, remedy="give a number from 1 up")
    return replace(read_model(_model_of(recipe, folder)), **changes), _plan(recipe)


def _model_of(recipe: Mapping[str, Any], folder: Path) -> str:
    model = recipe.get("model")
    if not isinstance(model, str):
        raise InputError(
            f"{recipe[MAKE]} needs a model",
            place=_PLACE,
            remedy="add model, a name that et-sim knows or a file",
        )
    return str(folder / model) if is_file(folder / model) else model


def _plan(recipe: Mapping[str, Any], **usual: Any) -> Plan:
    """The plan of a recipe; `usual` stands where its keys are left out."""
    given, chosen = recipe.get(PLAN, {}), usual
    for plan_field in fields(Plan):
        key = plan_field.metadata["flag"].lstrip("-")
        if key not in given:
            continue
        value = given[key]
        if isinstance(plan_field.default, bool):
            if not isinstance(value, bool):
                raise _no(f"plan.{key}", value, "true or false")
            chosen[plan_field.name] = (
                value != plan_field.default
            )  # an option may say that something is left out
        elif isinstance(plan_field.default, tuple):
            if not isinstance(value, list) or not all(type(part) is int for part in value):
                raise _no(f"plan.{key}", value, "a list of whole numbers")
            chosen[plan_field.name] = tuple(value)
        elif isinstance(plan_field.default, float) and type(value) is int:
            chosen[plan_field.name] = float(value)
        elif type(value) is not type(plan_field.default):
            raise _no(f"plan.{key}", value, "a text" if isinstance(plan_field.default, str) else "a number")
        else:
            chosen[plan_field.name] = value
    return Plan(**chosen)


def _whole(recipe: Mapping[str, Any], name: str, usual: int) -> int:
    value = recipe.get(name, usual)
    if type(value) is not int:
        raise _no(name, value, "a whole number")
    return value


def _no(key: str, value: Any, wanted: str) -> InputError:
    return InputError(f"{key} is {value!r}", place=_PLACE, remedy=f"give {wanted}")
