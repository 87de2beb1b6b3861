"""`et-sim serve`: serve requests that arrive over time with replicas of a language model."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from et_sim.basics.declared_options import Command, Count, Option, OptionGroup
from et_sim.basics.files import in_shell
from et_sim.basics.units import parse_bytes, parse_time_ns
from et_sim.cli.jobs import (
    SERVE,
    Layers,
    Sequence,
    Vocabulary,
    naming_options,
    read_model,
    read_plan,
    warn_of,
    with_plan,
)
from et_sim.cli.options import run_options
from et_sim.cli.progress import Progress
from et_sim.run.options import HELP, RunOptions
from et_sim.serving.batcher import POLICIES
from et_sim.serving.caching import ROUTERS
from et_sim.serving.engines import DEFAULT

if TYPE_CHECKING:
    from et_sim.serving.results import Serving
    from et_sim.serving.setups import Setup


Time = Annotated[float | None, Option(parse=parse_time_ns, least=1)]
TimeFrom0 = Annotated[float | None, Option(parse=parse_time_ns)]
DECODE_OPTIONS = {"decode_tp": "tensor", "decode_dp": "data", "decode_ep": "expert", "decode_pp": "pipeline"}
REPLICA = OptionGroup("the model, and a replica of it")
SERVING = OptionGroup("how requests are served")
MACHINE = OptionGroup("the machine")


@with_plan(SERVE, REPLICA)
class ReplicaOptions(Command):
    """Options of a model and its replicas."""

    model: Annotated[str, "a preset, such as llama3-8b, or a config.json", Option(), REPLICA]
    layers: Annotated[Layers, REPLICA] = None
    sequence: Annotated[Sequence, REPLICA] = None
    vocabulary: Annotated[Vocabulary, REPLICA] = None


class Options(ReplicaOptions):
    """Serve requests with replicas of a language model, batch by batch. Every distinct forward pass, and
    every transfer of a cache, is simulated on the machine.
    """

    requests: Annotated[
        str,
        "CSV file with the columns arrival_s, prompt_tokens, output_tokens (and session, think_s, model), or"
        " a trace of Mooncake, Azure or BurstGPT; or poisson:RATE,COUNT,PROMPT,OUTPUT; constant: likewise;"
        " gamma:RATE,CV,COUNT,PROMPT,OUTPUT; sessions:RATE,COUNT,TURNS,PROMPT,OUTPUT,THINK_S; or"
        " closed:PROMPT,OUTPUT[,COUNT] with --concurrency; or rollout:PROMPT,OUTPUT,COUNT,BATCHES",
        "REQUESTS",
    ]
    concurrency: Annotated[
        Count,
        "requests under way at a time: the next one is sent when one has ended (default: as they arrive)",
    ] = None
    lengths: Annotated[
        float, "lengths are uniform between this share of the given ones and all of them (default: 1)"
    ] = 1.0
    warm_up: Annotated[
        int | None, "first requests that are not counted (default: 2 for each of --concurrency with closed)"
    ] = None
    spread: Annotated[
        bool, "the first requests of a closed loop end at different times, so that equal ones are not in step"
    ] = False
    send_weights: Annotated[
        bool, "before each further batch of a rollout, new weights are sent to all replicas"
    ] = False
    seed: Annotated[int | None, "seed of the arrivals and lengths that are drawn (default: 0)"] = None
    rate: Annotated[
        float | None, "stretch times of arrival to so many requests a second on average (default: as given)"
    ] = None
    find_rate: Annotated[
        bool, "serve at the largest rate at which enough requests keep --ttft and --tpot; print those tried"
    ] = False
    good_share: Annotated[float | None, "with --find-rate: enough requests (default: 0.99 of all)"] = None
    tolerance: Annotated[
        float | None, "with --find-rate: ratio by which a larger rate might do, too (default: 0.02)"
    ] = None
    out: Annotated[Path | None, "directory to write (default: ./NAME.serve)"] = None
    json: Annotated[bool, "print the content of summary.json"] = False
    replicas: Annotated[Count, "replicas for both prompts and output tokens (default: 1)", SERVING] = None
    prefill_replicas: Annotated[Count, "replicas that only process prompts", SERVING] = None
    decode_replicas: Annotated[
        Count,
        "replicas that receive the caches of prompts, and generate tokens",
        SERVING,
    ] = None
    decode_tp: Annotated[int | None, "--tp of a decode replica (default: that of all)", SERVING] = None
    decode_dp: Annotated[int | None, "--dp of a decode replica, likewise", SERVING] = None
    decode_ep: Annotated[int | None, "--ep of a decode replica, likewise", SERVING] = None
    decode_pp: Annotated[int | None, "--pp of a decode replica, likewise", SERVING] = None
    autoscale: Annotated[
        str | None,
        "start and stop replicas by a target of each: requests:N that it has, queue:N that wait, or"
        " busy:SHARE of the time; --replicas is the least",
        SERVING,
    ] = None
    most_replicas: Annotated[Count, "with --autoscale: replicas at most", SERVING] = None
    start_time: Annotated[
        TimeFrom0, "with --autoscale: start of an engine after its weights are there, such as 60s", SERVING
    ] = None
    scale_every: Annotated[
        Time, "with --autoscale: time from one decision to the next (default: 15s)", SERVING
    ] = None
    scale_down_after: Annotated[
        TimeFrom0, "with --autoscale: replicas stop if fewer are wanted for so long (default: 300s)", SERVING
    ] = None
    weights_from: Annotated[
        str | None,
        "weights of a replica that starts: of a peer that serves, or a store on ranks behind the replicas"
        " (default: peer)",
        SERVING,
    ] = None
    second_model: Annotated[
        str | None,
        "another model with replicas of its own behind the others, as in llama3-8b,share=0.3,tp=2,replicas=2:"
        " the share of requests for it (default: by the column model of the file), its ranks (tp, dp, ep,"
        " pp), and its replicas (or prefill-replicas and decode-replicas)",
        SERVING,
    ] = None
    transfer: Annotated[
        str | None,
        "caches to decode replicas: whole after the prompt, or layers while it is computed (default: whole)",
        SERVING,
    ] = None
    engine: Annotated[
        str,
        "vllm, trtllm or sglang, with :VERSION or not, or a file: batching, memory, host (default: vllm)",
        SERVING,
    ] = DEFAULT
    policy: Annotated[
        str | None,
        f"order of prompts and tokens: {' or '.join(POLICIES)} (default: the engine's, as all of these)",
        SERVING,
    ] = None
    max_batch: Annotated[int | None, "most sequences that run at a time on a replica", SERVING] = None
    token_budget: Annotated[int | None, "most tokens of a batch; of its prompts unless chunked", SERVING] = (
        None
    )
    block: Annotated[int | None, "tokens whose cache is allocated together", SERVING] = None
    prompt_every: Annotated[
        int | None, "admit prompts to each N-th pass only, so that groups of --dp do so together", SERVING
    ] = None
    cache_tokens: Annotated[Count, "tokens of a replica's cache, as an engine's log states them", SERVING] = (
        None
    )
    prefix_cache: Annotated[
        str | None,
        "tokens that stay cached after their requests, for prompts that begin with the same ones: a number,"
        " or all for as many as fit (default: none)",
        SERVING,
    ] = None
    offload: Annotated[
        str | None,
        "tokens that stay in the memory of --memory after their requests, and are loaded in place of being"
        " computed: a number, or all (default: none)",
        SERVING,
    ] = None
    router: Annotated[
        str | None,
        f"replica of a request, that with the fewest tokens left: {' or '.join(ROUTERS)}, which counts those"
        " that are cached there as done (default: load)",
        SERVING,
    ] = None
    context_step: Annotated[int, "round cached contexts up to so many tokens; 1: exact", SERVING] = 64
    capacity: Annotated[
        int | None,
        Option(parse=parse_bytes, least=1),
        "memory of an NPU, such as 80GiB (default: that of the machine)",
        SERVING,
    ] = None
    memory_share: Annotated[float | None, "share of memory in the engine's rule of the cache", SERVING] = None
    speculate: Annotated[
        str | None,
        "drafts that a pass verifies: mtp:N, ngram:N or MODEL:N, each of N tokens of a sequence",
        SERVING,
    ] = None
    acceptance: Annotated[
        float | None, "tokens of a pass that a sequence keeps on average, from 1 to N + 1", SERVING
    ] = None
    image_tokens: Annotated[
        Count,
        "tokens that the images of each request add to its prompt, after the model's vision tower has encoded"
        " them (default: no images)",
        SERVING,
    ] = None
    ttft: Annotated[Time, "the longest time to first token of a good request, such as 200ms", SERVING] = None
    tpot: Annotated[Time, "the longest time per output token of a good request, such as 20ms", SERVING] = None
    system: Annotated[str | None, HELP["system"], MACHINE] = None
    network: Annotated[str | None, HELP["network"], MACHINE] = None
    memory: Annotated[str | None, HELP["memory"], MACHINE] = None
    machine: Annotated[str | None, HELP["machine"], MACHINE] = None
    profile: Annotated[str | None, HELP["profile"], MACHINE] = None
    fold: Annotated[bool, "simulate every rank by itself, with the same result", MACHINE] = True
    network_model: Annotated[str | None, HELP["model"], MACHINE] = None


@naming_options()
def run(options: Options) -> int:
    """Serve, write the directory, and print the summary."""
    from et_sim.cli.simulating import warning_line
    from et_sim.timeline import check_target
    from et_sim.views.serving import summary_lines
    from et_sim.views.text import terminal_width

    target = options.out or Path(f"{_name(options.requests)}.serve")
    check_target(target)
    model, setup, machine = _read(options)
    with Progress() as progress:
        progress.stage("serving")
        serving = _served(options, model, setup, machine, progress.serving)
        progress.stage("adding up and writing")
        serving.write(target)
    for notice in serving.manifest["warnings"]:
        print(warning_line(notice), file=sys.stderr)
    summary = serving.summary()
    if options.json:
        print(json.dumps(summary, indent=2, ensure_ascii=False))
        return 0
    print("\n".join(summary_lines(summary, terminal_width())))
    print(f"\nwritten to {target}; look closer with: et-sim inspect {in_shell(target)}, or et-sim sql")
    return 0


def _served(options: Options, model: Any, setup: Setup, machine: RunOptions, report: Any) -> Serving:
    """Return the results of serving, at the largest good rate if it is wanted."""
    from et_sim.serving.rates import RateGoal, serve_at_largest_rate
    from et_sim.serving.serve import serve

    if not options.find_rate:
        return serve(options.requests, model, setup, machine, report)
    wanted = {"share": options.good_share, "tolerance": options.tolerance}
    goal = RateGoal(**{name: value for name, value in wanted.items() if value is not None})
    return serve_at_largest_rate(options.requests, model, setup, machine, goal, report)


def _name(requests: str) -> str:
    return requests.partition(":")[0] if ":" in requests else Path(requests).stem


def _read(options: Options) -> tuple[Any, Setup, RunOptions]:
    """Return the model, the setup of serving, and the machine."""
    from msgspec.structs import fields, replace

    from et_sim.cli.needs import OF_SERVING, case_of, check_needs
    from et_sim.serving.described import ServingChoices, setup_of
    from et_sim.serving.images import images_of
    from et_sim.workloads.inference.batch import check

    plan = read_plan(options)
    names = {field.name for field in fields(ServingChoices)} - {"decode"}
    decode = {field: getattr(options, name) for name, field in DECODE_OPTIONS.items()}
    decode = {field: value for field, value in decode.items() if value is not None}
    choices = ServingChoices(**{name: getattr(options, name) for name in names}, decode=decode)
    model = read_model(options, plan)
    images = images_of(options.image_tokens, options.model)
    warn_of(() if images is None else images.tower.remarks)
    setup = replace(setup_of(choices, plan, model), images=images)
    warn_of(() if setup.second is None else setup.second.model.remarks)
    check(model, plan)
    check_needs(OF_SERVING, case_of(options, model, plan, setup.decode_plan))
    return model, setup, run_options(options)
