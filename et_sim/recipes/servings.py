"""Requests to serve by their options: `make: serving` with a model, a load, an engine and a plan.

The keys are the options of `et-sim serve`, without the leading hyphens; `decode-plan` has those of the plan
that decode replicas have apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import fields, replace

from et_sim.basics.files import is_file
from et_sim.documents.keys import Slot, ValueKind, key, keys_by_field, keys_of, read_keys
from et_sim.documents.kinds import count, flag, number, size, text, time
from et_sim.serving.batcher import POLICIES
from et_sim.serving.caching import ALL, ROUTERS
from et_sim.serving.engines import DEFAULT
from et_sim.serving.transfers import TRANSFERS
from et_sim.workloads.models.model import Model
from et_sim.workloads.training.plan import Plan, plan_of

if TYPE_CHECKING:
    from et_sim.run.options import RunOptions
    from et_sim.serving.replicas import MachineTimes
    from et_sim.serving.results import Serving
    from et_sim.serving.setups import Setup

SERVING, PLAN, DECODE_PLAN = "serving", "plan", "decode-plan"
SECOND = 10**9


def _plan(slot: Slot, value: Any) -> dict[str, Any]:
    """Return the fields of a plan that are given; options without a value are left out."""
    if not isinstance(value, dict):
        raise slot.refusal(value)
    given = read_keys(slot.section.entry(slot.key.name, value), keys_of(Plan), slot.remarks)
    return {field: given[key.name] for field, key in keys_by_field(Plan).items() if key.name in given}


PLANNED = ValueKind("plan", lambda _: "an object, as in plan: {tp: 8, dp: 2}", _plan)


def _tokens(slot: Slot, value: Any) -> str:
    """Return a number of tokens, or `all`, as an option states it."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise slot.refusal(value)
    return str(value)


TOKENS = ValueKind("tokens", lambda _: f"a number of tokens, or {ALL}", _tokens)


class ServingRecipe(Struct, frozen=True):
    """The keys of a point that serves requests."""

    make: str = text("`serving`.", required=True)
    model: str = text("The model.", required=True, form="the name of a preset, or a file")
    requests: str = text("The load: a file, or a rule, as `et-sim serve` takes it.", required=True)
    plan: dict[str, Any] = key(PLANNED, "The plan of parallelism of a replica.", {})
    engine: str = text("The engine, by name or as a file.", DEFAULT)
    replicas: int | None = count("The number of replicas for prompts and tokens.", None, minimum=1)
    prefill_replicas: int | None = count("The number of replicas only for prompts.", None, minimum=1)
    decode_replicas: int | None = count("The number of replicas only for further tokens.", None, minimum=1)
    decode_plan: dict[str, Any] = key(PLANNED, "The keys of a plan that decode replicas have apart.", {})
    concurrency: int | None = count("Requests under way at a time.", None, minimum=1)
    lengths: float = number("The least share of the given lengths.", 1.0)
    warm_up: int | None = count("First requests that are not counted.", None)
    spread: bool = flag("The first requests of a closed loop end at different times.", False)
    send_weights: bool = flag("New weights are sent before each further batch of a rollout.", False)
    autoscale: str | None = text("The target by which replicas start and stop.", None, form="requests:16")
    most_replicas: int | None = count("Replicas at most, with `autoscale`.", None, minimum=1)
    start_time: float | None = time("The start of an engine after its weights are there.", None)
    scale_every: float | None = time("The time from one decision of `autoscale` to the next.", None)
    scale_down_after: float | None = time("Replicas stop if fewer are wanted for so long.", None)
    weights_from: str | None = text("The source of weights of a replica that starts.", None)
    second_model: str | None = text(
        "A second model on the same machine, the share of requests for it, and its replicas.",
        None,
        form="llama3-8b,share=0.3,tp=2,replicas=2",
    )
    seed: int | None = count("The seed of arrivals and lengths.", None)
    rate: float | None = number("Requests per second, to which arrivals are stretched.", None)
    find_rate: bool = flag("Serve at the largest rate at which enough requests are good.", False)
    good_share: float | None = number("Enough requests, as a share of all, with `find-rate`.", None)
    tolerance: float | None = number("The precision of the rate, with `find-rate`.", None)
    speculate: str | None = text("Drafts, as in `mtp:1`.", None)
    acceptance: float | None = number("Tokens of a pass that a sequence keeps.", None)
    image_tokens: int | None = count("Tokens of the images of each request.", None, minimum=1)
    ttft: float | None = time("The longest time to the first token of a good request.", None)
    tpot: float | None = time("The longest time per output token of a good request.", None)
    policy: str | None = text("The order of prompts and tokens.", None, form=" or ".join(POLICIES))
    max_batch: int | None = count("Sequences that run at a time on a replica.", None, minimum=1)
    token_budget: int | None = count("Tokens of a pass.", None, minimum=1)
    block: int | None = count("Tokens whose cache is allocated together.", None, minimum=1)
    prompt_every: int | None = count("Prompts are in each pass of this number.", None, minimum=1)
    cache_tokens: int | None = count("Tokens of a replica's cache.", None, minimum=1)
    prefix_cache: str | None = key(TOKENS, "Tokens that stay cached after their requests.", None)
    offload: str | None = key(TOKENS, "Tokens that stay in remote memory after their requests.", None)
    router: str | None = text("The replica of a request.", None, form=" or ".join(ROUTERS))
    transfer: str | None = text("Transfers to decode replicas.", None, form=" or ".join(TRANSFERS))
    context_step: int = count("Contexts are rounded up to so many tokens.", 64, minimum=1)
    capacity: int | None = size("Memory of an NPU.", None)
    memory_share: float | None = number("Share of memory in the engine's rule of the cache.", None)


def serve_point(recipe: ServingRecipe, folder: Path, options: RunOptions, shared: MachineTimes) -> Serving:
    """Serve the load of a point; its files are looked up in the folder first."""
    from et_sim.serving.rates import RateGoal, serve_at_largest_rate
    from et_sim.serving.serve import serve
    from et_sim.workloads.models.configuration import read_model

    model, requests = read_model(beside(recipe.model, folder)), beside(recipe.requests, folder)
    setup = setup_of_recipe(recipe, folder, model)
    goal = {"share": recipe.good_share, "tolerance": recipe.tolerance}
    if not recipe.find_rate:
        return serve(requests, model, setup, options, shared=shared)
    found = RateGoal(**{name: value for name, value in goal.items() if value is not None})
    return serve_at_largest_rate(requests, model, setup, options, found, shared=shared)


def setup_of_recipe(recipe: ServingRecipe, folder: Path, model: Model) -> Setup:
    """Return the setup of a point that serves a model."""
    from et_sim.serving.described import ServingChoices, setup_of
    from et_sim.serving.images import images_of

    names = {field.name for field in fields(ServingChoices)} - {"decode"}
    given = {name: getattr(recipe, name) for name in names}
    given["engine"] = beside(recipe.engine, folder)
    if recipe.second_model is not None:
        name, sign, values = recipe.second_model.partition(",")
        given["second_model"] = beside(name, folder) + sign + values
    setup = setup_of(ServingChoices(**given, decode=recipe.decode_plan), plan_of(recipe.plan), model)
    return replace(setup, images=images_of(recipe.image_tokens, beside(recipe.model, folder)))


def beside(name: str, folder: Path) -> str:
    """Return the path of a file in the folder, or the name if there is none."""
    return str(folder / name) if is_file(folder / name) else name


def serving_figures(serving: Serving) -> dict[str, Any]:
    """Return the figures of a row."""
    from et_sim.serving.rates import keeps_up

    of = serving.summary()
    summary: Mapping[str, Any] = of
    costs, each = summary["costs"] or {}, summary["tpot_ns"]
    npus = sum(pool["replicas"] * pool["ranks_of_replica"] for pool in summary["pools"])
    on = summary["scaling"]["mean_npus"] if "scaling" in summary else npus
    joules = costs.get("most_joules_per_million_output_tokens")
    price = costs.get("price_per_million_output_tokens")
    good = summary["goodput"]
    is_busy = summary["busy_share"] >= 0.5
    spreads = {
        f"{name}_{column}_ns": None if summary[f"{name}_ns"] is None else summary[f"{name}_ns"][column]
        for name in ("ttft", "tpot")
        for column in ("p50", "p99")
    }
    return {
        "status": "complete",
        "ranks": npus,
        "warnings": [],
        "makespan_ns": summary["duration_ns"],
        "bottleneck": "passes" if is_busy else "waiting for requests",
        "bottleneck_share": summary["busy_share"] if is_busy else round(1 - summary["busy_share"], 6),
        "output_tokens_per_s_per_rank": summary["output_tokens_per_s"] / on,
        "tokens_per_s_per_user": None if each is None else SECOND / each["mean"],
        "requests_per_s": summary["requests_per_s"],
        "good_share": None if good is None else good["share"],
        "keeps_up": int(keeps_up(serving, of) is not False),
        **spreads,
        "price_per_million_tokens": price,
        "joules_per_million_tokens": joules,
        "currency": None if price is None else costs["currency"],
    }
