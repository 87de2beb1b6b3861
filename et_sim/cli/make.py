"""`et-sim make`: write the traces of a microbenchmark, of a training job, or of inference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from et_sim.basics.declared_options import EITHER, Option
from et_sim.basics.errors import UsageError, did_you_mean
from et_sim.basics.files import in_shell
from et_sim.basics.units import format_bytes
from et_sim.cli.jobs import JOBS, LLM, InferenceOptions, make_job, naming_options, refuse_others
from et_sim.cli.options import RanksOfMachine, Size, ranks_of
from et_sim.cli.progress import Progress
from et_sim.workloads.microbenchmarks import KINDS, make_microbenchmark

if TYPE_CHECKING:
    from et_sim.trace import Workload

MOST_NODES = 1_000_000  # per rank
MOST_FILES = 1_000_000
FILES_BY_DEFAULT = 4096  # with more ranks, the default is a manifest
NO_SIZE = ("compute", "barrier")


class Options(InferenceOptions):
    """Write the traces of a microbenchmark (one operation, or several in a chain), of one step of training a
    language model, a convolutional network or a recommendation model, or of forward passes of a language
    model: over prompts (prefill), or over a token of each sequence (decode).
    """

    epilog = f"kinds: {', '.join((*KINDS, *JOBS))}"

    kind: Annotated[str, "what to make, see below", "KIND"]
    ranks: Annotated[int | None, "how many ranks"] = None
    machine: RanksOfMachine = None
    bytes: Annotated[Size, "comm_size of each operation: 1024, 64KiB, 1.5GB, …"] = None
    repeat: Annotated[int, "operations, each after the last"] = 1
    compute_us: Annotated[
        int, "microseconds of computation before each operation; may overlap with the operation before"
    ] = 0
    output: Annotated[
        str,
        "write PREFIX.0.et, PREFIX.1.et, …, or PREFIX.workload.json and its templates",
        "PREFIX",
        Option("-o --output"),
    ]
    manifest: Annotated[
        bool,
        "write a workload manifest and a few templates; the default for a training job, for more than"
        f" {FILES_BY_DEFAULT:,} ranks, and if PREFIX ends in .workload.json",
        EITHER,
    ] = False
    files: Annotated[bool, "write one trace file per rank", EITHER] = False
    json: Annotated[bool, "print what was written as JSON"] = False


@naming_options()
def run(options: Options) -> int:
    """Make the workload and write it."""
    options.ranks = ranks_of(options)
    if options.kind in JOBS:
        workload, description, facts = _made_job(options)
    else:
        size = options.bytes or 0
        workload = make_microbenchmark(
            options.kind,
            ranks=_checked_ranks(options, size),
            size=size,
            repeat=options.repeat,
            compute_us=options.compute_us,
        )
        description = f"{options.kind} of {format_bytes(size)} ({size} bytes)" if size else options.kind
        facts = {"bytes": size}
    facts = {"kind": options.kind, "ranks": workload.ranks, "nodes": workload.nodes, **facts}
    recipe, assumed = None, []
    if options.kind == LLM and workload.software is not None and workload.software.is_assumed:
        from et_sim.cli.assumed_software import assumed_software, recipe_for_manifest

        recipe = recipe_for_manifest(options, facts["model"]["sequence"])
        assumed = assumed_software(options)
    written, lines = _write(options, workload, description, recipe)
    lines = "\n".join((lines, *assumed))
    print(json.dumps({**written, **facts}, indent=2, ensure_ascii=False) if options.json else lines)
    return 0


def _made_job(options: Options) -> tuple[Workload, str, dict[str, Any]]:
    """Return the job, its description in words, and its shape for programs."""
    from msgspec.structs import asdict

    for option, usual in (("bytes", None), ("repeat", 1), ("compute_us", 0)):
        if vars(options)[option] != usual:
            name = option.replace("_", "-")
            raise UsageError(f"--{name} is not for {options.kind}", remedy="the model gives sizes and times")
    job = make_job(options)
    if options.ranks not in (None, job.workload.ranks):
        given = f"--machine is {options.machine}" if options.machine else f"--ranks is {options.ranks}"
        raise UsageError(
            f"{given}, and the plan ({job.plan.axes}) makes {job.workload.ranks} ranks",
            remedy=f"leave --{'machine' if options.machine else 'ranks'} out, or correct one of them",
        )
    return job.workload, job.text, {"model": job.model, "plan": asdict(job.plan), **job.more}


def _write(
    options: Options, workload: Workload, contents: str, recipe: dict[str, Any] | None
) -> tuple[dict[str, Any], str]:
    """Write files or a manifest; return a description for programs and one for people."""
    from et_sim.trace import write_manifest
    from et_sim.trace.disk import ENDING
    from et_sim.trace.files import groups_path

    prefix = options.output.removesuffix(ENDING)
    run = f"run it with: et-sim run {in_shell(prefix)}"
    machine = f"--machine {in_shell(options.machine)}" if options.machine else "--system FILE --network FILE"
    if not _wants_manifest(options, workload.ranks):
        _write_files(workload, prefix)
        last = workload.ranks - 1
        files = f"{prefix}.0.et" + (f" to {prefix}.{last}.et" if last else "")
        machine += f" --profile {workload.profile}"  # a manifest names it
        if not workload.group_rules:
            line = f"{contents}: {workload.nodes} nodes in {files}"
            return {"prefix": prefix}, f"{line}\n{run} {machine}"
        groups = str(groups_path(prefix))
        line = f"{contents}: {workload.nodes} nodes in {files}, groups in {groups}"
        return {"prefix": prefix, "groups": groups}, f"{line}\n{run} --groups {in_shell(groups)} {machine}"
    manifest, *templates = (str(path) for path in write_manifest(workload, Path(prefix + ENDING), recipe))
    last = len(templates) - 1
    files = templates[0] + (f" to {templates[last]}" if last else "")
    ranks = "rank" if workload.ranks == 1 else "ranks"
    lines = [
        f"{contents}: {workload.nodes} nodes on {workload.ranks} {ranks}",
        f"written to {manifest}, with {'1 template' if last < 1 else f'{last + 1} templates'} ({files})",
        f"run it with: et-sim run {in_shell(manifest)} {machine}",
    ]
    return {"manifest": manifest, "templates": templates}, "\n".join(lines)


def _write_files(workload: Workload, prefix: str) -> None:
    """Write all files or none, and show progress."""
    from et_sim.trace.disk import replace_all
    from et_sim.trace.files import files_of_ranks

    with Progress() as progress:
        progress.stage("writing")
        count = workload.ranks + bool(workload.group_rules)
        replace_all(progress.counted(files_of_ranks(workload, prefix), count, "files"), prefix)


def _wants_manifest(options: Options, ranks: int) -> bool:
    from et_sim.trace.disk import ENDING

    named = options.output.endswith(ENDING)
    if options.files:
        if named:
            raise UsageError(f"--files, and a name that ends in {ENDING}", remedy="leave one of them out")
        if ranks > MOST_FILES:
            raise UsageError(
                f"{ranks:,} ranks would be as many files",
                remedy=f"write at most {MOST_FILES:,}, or a manifest: leave --files out",
            )
        return False
    return bool(options.manifest or named or ranks > FILES_BY_DEFAULT or options.kind in JOBS)


def _checked_ranks(options: Options, size: int) -> int:
    """Refuse unwritable outputs, and wrong sizes and numbers of ranks, before anything is made."""
    from et_sim.trace.manifest import MOST_RANKS

    if options.kind not in KINDS:
        known = (*KINDS, *JOBS)
        remedy = did_you_mean(options.kind, known) or f"known: {', '.join(known)}"
        raise UsageError(f"there is nothing called {options.kind!r} to make", remedy=remedy)
    refuse_others(options, options.kind)
    if options.ranks is None:
        raise UsageError(f"{options.kind} needs a number of ranks", remedy="add --ranks, as in --ranks 8")
    if options.bytes is None and options.kind not in NO_SIZE:
        raise UsageError(f"{options.kind} needs a size", remedy="add --bytes, such as --bytes 1MiB")
    if options.kind == "barrier" and size:
        raise UsageError("barrier moves no bytes", remedy="leave --bytes out")
    if options.ranks > MOST_RANKS:
        raise UsageError(f"{options.ranks:,} ranks are too many", remedy=f"make at most {MOST_RANKS:,} ranks")
    if options.repeat > MOST_NODES:
        raise UsageError(
            f"{options.repeat:,} operations on every rank are too many",
            remedy=f"repeat at most {MOST_NODES:,} times",
        )
    _wants_manifest(options, options.ranks)  # may refuse
    return options.ranks
