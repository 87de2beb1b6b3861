"""`et-record`: run a training script as some ranks of many, without devices, and write the workload of all.

Results go to stdout, everything else to stderr. Exit status: 0 success, 1 the program failed, 2 bad usage.
PyTorch is imported only by the processes that record.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from et_sim.basics.command_line import Parser, interruptible
from et_sim.basics.declared_options import Argument, Command, Count, Option, add_version
from et_sim.basics.errors import EtSimError, UsageError
from et_sim.basics.terminal import visible_streams
from et_sim.basics.units import format_ranks, parse_ranks, parse_time_ns

if TYPE_CHECKING:
    from recorder.launching import Program
    from recorder.recorded import ExpertRouting, RankRecording

AUTO = "auto"
MOST_PROCESSES = 64


def main(arguments: Sequence[str] | None = None) -> int:
    """Record the program and return the exit status of the process."""
    with visible_streams():
        parser = Parser(prog="et-record")
        add_version(parser)
        parser.declare(Options, _record)
        try:
            options = parser.parse_args(arguments)
            with interruptible():
                for line in _record(options):
                    print(line)
            sys.stdout.flush()
        except EtSimError as error:
            sys.stdout.flush()
            print(f"et-record: error: {error}", file=sys.stderr)
            return error.exit_status
        except KeyboardInterrupt:
            print("et-record: interrupted", file=sys.stderr)
            return 130
        return 0


class Options(Command):
    """Record a distributed PyTorch program without its devices: it runs on shapes alone, as some of its
    ranks, and yields a workload of all of them."""

    world: Annotated[int, "ranks of the job", "N", Option(least=1)]
    ranks: Annotated[str, "ranks to record, as 0-3,8 (default: auto, one per role)", "LIST"] = AUTO
    output: Annotated[str, "the workload, NAME.workload.json", "FILE", Option("-o --output")]
    local_world: Annotated[Count, "ranks of a machine (default: 8, or all if fewer)", "N"] = None
    step: Annotated[
        int | None, "only this training step, counted from 0 (default: everything)", "N", Option(least=0)
    ] = None
    host_time: Annotated[
        float, "of the host for each operator, as 5us (default: none)", "TIME", Option(parse=parse_time_ns)
    ] = 0
    software: Annotated[
        str,
        "its kernels of attention and the factor on kernels, as et-sim make has it (default: none)",
        "NAME",
    ] = ""
    expert_skew: Annotated[
        str, "distribution of tokens over experts: zipf:S, or a JSON list (default: even)", "SKEW"
    ] = ""
    expert_seed: Annotated[int, "seed for the choice of busy experts, with zipf", "N"] = 0
    keep_roots: Annotated[bool, "record broadcasts with their root, so that ranks have different roles"] = (
        False
    )
    keep: Annotated[bool, "keep the work recorded before an error of the program"] = False
    report: Annotated[str | None, "write the whole report as JSON", "FILE"] = None
    force: Annotated[bool, "permit unsupported versions of PyTorch"] = False
    script: Annotated[str, "the training script"]
    arguments: Annotated[Sequence[str], "its arguments", Argument(words="...")]


def _record(options: Options) -> list[str]:
    from et_sim.trace.disk import replace_all
    from et_sim.trace.manifest import manifest_stem, write_manifest
    from recorder import report
    from recorder.launching import Program, check_torch
    from recorder.recorded import ExpertRouting
    from recorder.roles import fold
    from recorder.workload import refuse_problems

    software = None
    if options.software:
        from et_sim.workloads.software.reading import read_software

        software = read_software(options.software)
    manifest_stem(options.output)
    check_torch(force=options.force)
    host_ns = round(options.host_time)
    local = options.local_world or min(8, options.world)
    routing = ExpertRouting(options.expert_skew, options.expert_seed)
    _check_routing(routing)
    arguments = tuple(options.arguments)
    program = Program(options.script, arguments, options.world, local, host_ns, routing, options.keep)
    with tempfile.TemporaryDirectory(prefix="et-record-") as folder:
        recordings = _recordings(program, options.ranks, Path(folder))
    if routing.skew and not any(report.spreads_experts(recording) for recording in recordings):
        raise UsageError("the program counts no choices of a router", remedy="leave --expert-skew out")
    workload, stands_for = fold(
        recordings, step=options.step, keep_roots=options.keep_roots, software=software
    )
    refuse_problems(workload)
    files = write_manifest(workload, options.output)
    if options.report:
        text = json.dumps(report.as_json(recordings, stands_for), indent=1)
        replace_all([(Path(options.report), f"{text}\n".encode())])
    return [
        *report.lines(recordings, stands_for, options.step),
        f"written to {files[0]}, {workload.nodes:,} nodes on {workload.ranks:,} ranks",
    ]


def _check_routing(routing: ExpertRouting) -> None:
    """Check the routing before the program runs."""
    from et_sim.workloads.training.expert_loads import is_zipf, tokens_of_experts

    if is_zipf(routing.skew):
        tokens_of_experts(*routing, experts=1, chosen=1, tokens=1)
    elif routing.seed:
        raise UsageError(
            f"--expert-seed is {routing.seed} without zipf", remedy="give --expert-skew, as in zipf:1.2"
        )
    elif routing.skew and not Path(routing.skew).is_file():
        raise UsageError(
            f"--expert-skew is {routing.skew!r}",
            remedy="give zipf:S, as in zipf:1.2, or a JSON file of loads",
        )


def _recordings(program: Program, ranks: str, folder: Path) -> list[RankRecording]:
    from recorder.launching import record_ranks
    from recorder.roles import missing_ranks, probes

    chosen = [0] if ranks == AUTO else sorted({rank for piece in parse_ranks(ranks) for rank in piece})
    if chosen[-1] >= program.world:
        raise UsageError(f"rank {chosen[-1]} is to be recorded", remedy=f"ranks are 0 to {program.world - 1}")
    while True:
        if len(chosen) > MOST_PROCESSES:
            raise UsageError(
                f"{len(chosen)} ranks would be recorded side by side",
                remedy=f"choose at most {MOST_PROCESSES} with --ranks",
            )
        recordings = record_ranks(program, chosen, folder)
        missing = missing_ranks(recordings, program.world) if ranks == AUTO else []
        needed = {recording.needs for recording in recordings if recording.stopped} - set(chosen)
        if ranks == AUTO:
            missing += needed
            if len(missing) > MOST_PROCESSES and len(chosen) == 1:
                missing = probes(program.world)  # ranks of a ring have one role
        if not missing:
            for recording in recordings:
                if recording.stopped:
                    both = format_ranks(sorted({*chosen, *needed}))
                    raise UsageError(
                        f"{recording.stopped}, which is not recorded",
                        remedy=f"record both: --ranks {both}, or one rank of each role with --ranks auto",
                    )
            return recordings
        chosen = sorted({*chosen, *missing})
