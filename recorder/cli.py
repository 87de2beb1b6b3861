"""`et-record`: run a training script as some ranks of many, without devices, and write the workload of all.

Results go to stdout, everything else to stderr. Exit status: 0 success, 1 the program failed, 2 bad usage.
PyTorch is imported only by the processes that record. Not here: those (`launching`).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from et_sim.basics.command_line import Parser, interruptible
from et_sim.basics.errors import EtSimError, UsageError
from et_sim.basics.terminal import visible_streams
from et_sim.basics.units import parse_ranks, parse_time_ns
from et_sim.version import __version__

if TYPE_CHECKING:
    from recorder.launching import Program
    from recorder.recorded import Recorded, Routing

AUTO = "auto"
MOST_PROCESSES = 64


def main(arguments: Sequence[str] | None = None) -> int:
    """Record; returns the process's exit status."""
    with visible_streams():
        options = _parser().parse_args(arguments)
        try:
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


def _parser() -> Parser:
    parser = Parser(
        prog="et-record",
        description="Record a distributed PyTorch program without its devices: it runs on shapes alone, as"
        " some of its ranks, and what comes out is a workload of all of them.",
    )
    add = parser.add_argument
    add("--version", action="version", version=f"et-record {__version__}")
    add("--world", type=int, required=True, metavar="N", help="ranks of the job")
    add(
        "--ranks",
        default=AUTO,
        metavar="LIST",
        help="ranks to record, as 0-3,8 (default: auto, one per role)",
    )
    add("-o", "--output", required=True, metavar="FILE", help="the workload, NAME.workload.json")
    add("--local-world", type=int, metavar="N", help="ranks of a machine (default: 8, or all if fewer)")
    add("--step", type=int, metavar="N", help="only this training step, counted from 0 (default: everything)")
    add("--host-time", metavar="TIME", help="of the host for each operator, as 5us (default: none)")
    add(
        "--expert-skew",
        default="",
        metavar="SKEW",
        help="how uneven experts are: zipf:S, or a JSON list (default: even)",
    )
    add("--expert-seed", type=int, default=0, metavar="N", help="which experts are busy, with zipf")
    add("--keep-roots", action="store_true", help="broadcasts from their root, which tells ranks apart")
    add("--report", metavar="FILE", help="write all that the report says as JSON")
    add("--force", action="store_true", help="try versions of PyTorch that are not supported")
    add("script", help="the training script")
    add("arguments", nargs=argparse.REMAINDER, help="its arguments")
    return parser


def _record(options: argparse.Namespace) -> list[str]:
    from et_sim.trace.disk import replace_all
    from et_sim.trace.manifest import manifest_stem, write_manifest
    from recorder import report
    from recorder.launching import Program, check_torch
    from recorder.recorded import Routing
    from recorder.roles import fold

    if options.world < 1:
        raise UsageError(f"--world is {options.world}", remedy="give the number of ranks")
    for name, value, least in (("--local-world", options.local_world, 1), ("--step", options.step, 0)):
        if value is not None and value < least:
            raise UsageError(f"{name} is {value}", remedy=f"give {least} or more")
    manifest_stem(options.output)
    check_torch(force=options.force)
    host_ns = round(parse_time_ns(options.host_time)) if options.host_time else 0
    local = options.local_world or min(8, options.world)
    routing = Routing(options.expert_skew, options.expert_seed)
    _check_routing(routing)
    program = Program(options.script, tuple(options.arguments), options.world, local, host_ns, routing)
    with tempfile.TemporaryDirectory(prefix="et-record-") as folder:
        recordings = _recordings(program, options.ranks, Path(folder))
    if routing.skew and not any(report.spreads_experts(recording) for recording in recordings):
        raise UsageError("the program counts no choices of a router", remedy="leave --expert-skew out")
    workload, stands_for = fold(recordings, step=options.step, keep_roots=options.keep_roots)
    files = write_manifest(workload, options.output)
    if options.report:
        text = json.dumps(report.as_json(recordings, stands_for), indent=1)
        replace_all([(Path(options.report), f"{text}\n".encode())])
    return [
        *report.lines(recordings, stands_for, options.step),
        f"written to {files[0]}, {workload.nodes:,} nodes on {workload.ranks:,} ranks",
    ]


def _check_routing(routing: Routing) -> None:
    """Whether it means anything, before a program runs for it."""
    from et_sim.workloads.training.plan import is_zipf, tokens_of_experts

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


def _recordings(program: Program, ranks: str, folder: Path) -> list[Recorded]:
    from recorder.launching import record_ranks
    from recorder.roles import missing_ranks

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
        if not missing:
            _refuse_stopped(recordings)
            return recordings
        chosen = sorted({*chosen, *missing})


def _refuse_stopped(recordings: list[Recorded]) -> None:
    for recording in recordings:
        if recording.stopped:
            raise UsageError(
                f"{recording.stopped}, which is not recorded",
                remedy="record both, or one rank of each role with --ranks auto",
            )
