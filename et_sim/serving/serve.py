"""Serving as a whole: requests, a model, replicas and a machine put together."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import to_builtins
from msgspec.structs import replace

from et_sim.basics.errors import FieldError, UsageError
from et_sim.machine import Machine, read_machine
from et_sim.machine.datatypes import ANY
from et_sim.machine.engine_kernels import words_on
from et_sim.machine.remote_memory import MemoryKind
from et_sim.machine.system import peaks_of
from et_sim.run.options import RunOptions
from et_sim.serving.clients import Traffic, read_traffic
from et_sim.serving.course import Course
from et_sim.serving.parts import ServedModel, results_of, served_model
from et_sim.serving.replicas import (
    BOTH,
    DECODE,
    PREFILL,
    CachePool,
    CacheRoom,
    MachineTimes,
    SimulatedTimes,
    check_pools,
    make_pool,
)
from et_sim.serving.requests import NONE, RULES, Request
from et_sim.serving.results import Serving
from et_sim.serving.rollouts import rollout_of, sending_weights
from et_sim.serving.setups import Setup
from et_sim.serving.speculation import Speculation
from et_sim.tables.summary import Scope
from et_sim.timeline.scope import MEMORY_UNKNOWN
from et_sim.version import __version__
from et_sim.workloads.inference.batch import check, check_length
from et_sim.workloads.inference.memory import SequenceCache
from et_sim.workloads.inference.numbers import check_cache_type
from et_sim.workloads.models.model import Model
from et_sim.workloads.training.plan import Plan


class Reached(NamedTuple):
    """The progress of serving."""

    now_ns: int
    done: int  # requests
    requests: int
    share: float  # of all output tokens
    passes: int  # that differ


def serve(
    given: str | Sequence[Request],
    model: Model,
    setup: Setup,
    options: RunOptions,
    report: Callable[[Reached], None] = lambda _: None,
    times_of: Callable[..., SimulatedTimes] = SimulatedTimes,
    shared: MachineTimes | None = None,
) -> Serving:
    """Serve the requests of a file, or given ones.

    `report` gets the progress at intervals.
    `times_of` makes the times of passes and transfers; `shared` holds those of kernels and exchanges that
    were found on the machine before.
    """
    second = setup.second
    models = (model, *(() if second is None else (second.model,)))
    share = None if second is None else second.share
    names = tuple(each.name for each in models)
    traffic = read_traffic(given, replace(setup.client, models=names, share=share))
    if setup.sends_weights and not 0 < traffic.batch < len(traffic.requests):
        raise UsageError(
            "--send-weights has no effect: no batch follows another one",
            remedy="give rollout:PROMPT,OUTPUT,COUNT,BATCHES with 2 batches or more, or leave it out",
        )
    if setup.autoscaling is not None and traffic.batch:
        raise UsageError(
            "--autoscale is for requests that are served as they arrive, and these are batches of a rollout",
            remedy="leave out --autoscale",
        )
    requests = traffic.requests if setup.images is None else setup.images.prompts(traffic.requests)
    machine = read_machine(**options.parts, profile=options.profile)
    if machine.network.failures or machine.slow:
        raise UsageError(
            'the machine has "failures" at times of a run, and passes of a server are simulated one by one',
            remedy='leave the key out, or give slower "links" or "stragglers"',
        )
    setups = [setup] if second is None else [setup, setup.of_second(second)]
    shared, npus, parts = shared or MachineTimes(), machine.network.ranks, list[ServedModel]()
    course = Course(
        lambda sent: parts[0].times.ends_of_models([(models[place], each) for place, each in sent])
    )
    tokens = sum(request.output for request in requests)

    def report_progress(now_ns: int, done: int, produced: int) -> None:
        passes = sum(len(part.times.passes) for part in parts)
        report(Reached(now_ns, done, len(requests), produced / tokens, passes))

    for place, (each, own) in enumerate(zip(models, setups, strict=True)):
        asked = [request for request in requests if max(request.model, 0) == place]
        after = parts[-1].pools[-1].end if parts else 0
        own, pools = pools_of(asked, each, own, machine, options, after)
        _check_caching(own, each, machine)
        separate = words_on(machine.system, own.engine.separate)
        of_engine = {"exchanges": own.engine.exchanges, "separate": separate}
        made = partial(times_of, options=options, npus=npus, shared=shared, **of_engine)
        parts.append(served_model(each, own, pools, machine, made, course, parts))
    weights_ns = sending_weights(parts[0].times, parts[0].pools, npus) if setup.sends_weights else _no_time
    client = traffic.concurrency, traffic.ends_first, traffic.batch
    parts[0].cluster.serve(requests, *client, weights_ns, report_progress)
    return _results(given, parts, traffic, machine, options, weights_ns)


def _no_time() -> int:
    """Return the time in which replicas get new weights if none are sent."""
    return 0


def _results(
    given: str | Sequence[Request],
    parts: Sequence[ServedModel],
    traffic: Traffic,
    machine: Machine,
    options: RunOptions,
    weights_ns: Callable[[], int],
) -> Serving:
    """Return the results of all models, and of each if there are several."""
    setup, counted = parts[0].setup, {request.number for request in traffic.requests[traffic.warm_up :]}
    first = next(part.times for part in parts if part.times.manifest)  # whose passes were simulated
    names = _names(parts)
    own = [
        results_of(part, _load_of(name, traffic, place), counted, machine)
        for place, (part, name) in enumerate(zip(parts, names, strict=True))
    ]
    facts = {
        **_load_of(" and ".join(names), traffic),
        "machine": options.machine,
        "npus": machine.network.ranks,
        "network_model": first.manifest["model"],
        "scope": _scope(first.scope, setup),
        "simulated_passes": sum(len(of.passes) for part in parts for of in (part.times, *part.others)),
        "simulated_transfers": sum(len(part.times.transfers) for part in parts),
        "context_step": setup.context_step,
        "engine": setup.engine.name,
        "warm_up": traffic.warm_up,
        **_facts_of(setup.speculation),
        **({"image_tokens": setup.images.tokens} if setup.images is not None else {}),
        "transfer": setup.transfer,
        "kernels": "machine" if not first.replayed else "tflops and memory-gbps",
    }
    return replace(
        own[0],
        served=sorted((of for each in own for of in each.served), key=lambda of: of.request.number),
        iterations=sorted((of for each in own for of in each.iterations), key=lambda of: of.start_ns),
        pools=tuple(pool for part in parts for pool in part.pools),
        facts=facts,
        manifest=_manifest(given, parts[0].model, setup, first),
        rollout=rollout_of(traffic, weights_ns),
        models=tuple(own) if len(own) > 1 else (),
    )


def _load_of(name: str, traffic: Traffic, place: int | None = None) -> dict[str, Any]:
    """Return the facts on the load of a model, or of all; requests under way are those of all models."""
    asked = (of for of in traffic.requests if place is None or max(of.model, 0) == place)
    return {
        "model": name,
        "concurrency": traffic.concurrency,
        "sessions": len({of.session for of in asked} - {NONE}),
    }


def _names(parts: Sequence[ServedModel]) -> list[str]:
    """Return the names of the models; the second one of equal names is marked as such."""
    names = [part.model.name for part in parts]
    return names if len({*names}) == len(names) else [names[0], f"{names[1]} (second)"]


def pools_of(
    requests: Sequence[Request],
    model: Model,
    setup: Setup,
    machine: Machine,
    options: RunOptions,
    after: int = 0,
) -> tuple[Setup, tuple[CachePool, ...]]:
    """Return the setup on a machine, and its replicas behind the ranks before `after`; refuse those that do
    not fit the model, or memory.
    """
    check(model, setup.plan)
    for request in requests:
        check_length(model, request.prompt + request.output, f"request {request.number}")
    setup = replace(
        setup,
        plan=_on_machine(model, setup.plan, machine, options),
        decode_plan=setup.decode_plan and _on_machine(model, setup.decode_plan, machine, options),
    )
    pools = _pools(model, setup, machine, after)
    check_pools(pools, machine.network.ranks)
    return setup, pools


def _facts_of(speculation: Speculation | None) -> dict[str, Any]:
    if speculation is None:
        return {}
    names = ("source", "tokens", "acceptance")
    return {"speculation": {name: getattr(speculation, name) for name in names}}


def _on_machine(model: Model, plan: Plan, machine: Machine, options: RunOptions) -> Plan:
    """Return the plan with the datatypes that the machine multiplies in; refuse a cache in others."""
    if plan.data > 1 and model.experts is None:
        raise FieldError(
            f"`data` is {plan.data}, but {model.name} has no experts that groups of ranks could share",
            remedy="give more replicas in place of it",
        )
    types = tuple(sorted(set(peaks_of(machine.system)) - {ANY}))
    check_cache_type(model, plan, types, options.machine or "the machine")
    return plan if plan.computes or not types else replace(plan, computes=",".join(types))


def _check_caching(setup: Setup, model: Model, machine: Machine) -> None:
    """Refuse a cache of prefixes that the model, that of drafts, or the machine does not support."""
    caching, speculation = setup.caching, setup.speculation
    models = (model, None if speculation is None else speculation.model)
    for each in filter(None, models if caching.shares_blocks else ()):
        if not SequenceCache.of(each, Plan()).is_plain:
            raise UsageError(
                f"layers of {each.name} keep different numbers of tokens, whose blocks are not shared",
                remedy="leave out --prefix-cache and --offload",
            )
    if caching.remote_tokens and machine.memory.kind is MemoryKind.NONE:
        raise UsageError(
            "--offload requires a remote memory, such as the host's",
            remedy='describe it in a file of --memory, as in {"memory-type": "PER_NPU_MEMORY_EXPANSION",'
            ' "remote-mem-latency": 2000, "remote-mem-bw": 50}',
        )


def _scope(of_pass: Scope, setup: Setup) -> Scope:
    """Return what a pass includes and leaves out, with the omissions of serving."""
    lacking = [text for text in of_pass["leaves_out"] if text != MEMORY_UNKNOWN]
    host = ["times of the engine's host"] if setup.engine.name else []
    stores = ["stores of caches in remote memory"] if setup.caching.remote_tokens else []
    drafts = setup.prefill_replicas and setup.speculation and setup.speculation.model
    sent = ["the drafting model's cache in transfers"] if drafts else []
    return {
        "includes": [*of_pass["includes"], "queues of requests, and caches that fit memory", *host],
        "leaves_out": [
            "passes slowed by each other or by transfers",
            *([] if host else ["work between passes"]),
            *stores,
            *sent,
            *lacking,
        ],
    }


def _pools(model: Model, setup: Setup, machine: Machine, after: int) -> tuple[CachePool, ...]:
    memory = machine.system.local_memory
    whole = setup.capacity_bytes or (memory.total_bytes if memory else 0)
    reserved = 0 if setup.capacity_bytes or memory is None else memory.reserved_bytes
    if not whole and not setup.cache_tokens:
        raise UsageError(
            "the memory of an NPU is not given",
            remedy="give --capacity, such as 80GiB, or a machine by name; or --cache-tokens",
        )
    rule = setup.engine.memory
    if setup.memory_share is not None:
        rule = replace(rule, share=setup.memory_share)
    room = CacheRoom(rule, whole, reserved, setup.cache_tokens)
    more, tower = (room, setup.policy, setup.speculation), 0
    if setup.images is not None:
        setup.images.check(setup.plan)
        tower = setup.images.weight_bytes(setup.plan)
    if not setup.prefill_replicas:
        most = setup.replicas if setup.autoscaling is None else setup.autoscaling.most
        return (make_pool(model, setup.plan, BOTH, most, after, *more, tower),)
    first = make_pool(model, setup.plan, PREFILL, setup.prefill_replicas, after, *more, tower)
    plan = setup.decode_plan or setup.plan
    second = make_pool(model, plan, DECODE, setup.replicas, first.end, *more)
    return (first, second)


def _manifest(
    given: str | Sequence[Request], model: Model, setup: Setup, times: SimulatedTimes
) -> dict[str, Any]:
    """Return the inputs: enough to repeat the run, and nothing that depends on the host."""
    inputs = list(times.manifest.get("inputs", []))
    requests: Any = len(given)
    if isinstance(given, str):
        is_rule = given.startswith(RULES)
        requests = given if is_rule else Path(given).name
        if not is_rule:
            digest = hashlib.sha256(Path(given).read_bytes()).hexdigest()
            inputs.append({"file": requests, "sha256": digest})
    return {
        "et_sim": __version__,
        "serving": requests,
        "model": to_builtins(model),
        "setup": to_builtins(setup),
        "network_model": times.manifest["model"],
        "machine": times.options.machine,
        **{name: times.manifest.get(name, []) for name in ("profile", "warnings", "defaults")},
        "inputs": inputs,
    }
