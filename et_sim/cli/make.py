"""`et-sim make`: write the traces of a microbenchmark."""

from __future__ import annotations

import argparse
import json
from typing import Any

from et_sim.errors import UsageError
from et_sim.trace.microbenchmarks import KINDS, make_microbenchmark

MOST_RANKS = 1_000_000  # one file each
MOST_NODES = 1_000_000  # of a rank
NO_SIZE = ("compute", "barrier")


def add_parser(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "make",
        help="write microbenchmark traces",
        description="Write the traces of a microbenchmark: one operation, or several in a chain.",
        epilog="kinds: " + ", ".join(KINDS),
    )
    parser.add_argument("kind", metavar="KIND", help="what to measure, see below")
    parser.add_argument("--ranks", type=int, required=True, help="how many ranks")
    parser.add_argument("--bytes", help="comm_size of each operation: 1024, 64KiB, 1.5GB, …")
    parser.add_argument("--repeat", type=int, default=1, help="operations, each after the last (default: 1)")
    parser.add_argument(
        "--compute-us",
        type=int,
        default=0,
        help="microseconds of computation before each operation; may overlap with the operation before",
    )
    parser.add_argument(
        "-o", "--output", metavar="PREFIX", required=True, help="write PREFIX.0.et, PREFIX.1.et, …"
    )
    parser.add_argument("--json", action="store_true", help="print what was written as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Make the workload and write one file per rank."""
    from et_sim.trace import write_workload
    from et_sim.units import format_bytes, parse_bytes

    size = parse_bytes(options.bytes) if options.bytes is not None else 0
    _check(options, size)
    workload = make_microbenchmark(
        options.kind,
        ranks=options.ranks,
        size=size,
        repeat=options.repeat,
        compute_us=options.compute_us,
    )
    write_workload(workload, options.output)
    nodes = sum(len(workload.trace(rank)) for rank in range(workload.ranks))
    if options.json:
        written = {"prefix": options.output, "kind": options.kind, "ranks": workload.ranks, "nodes": nodes}
        print(json.dumps({**written, "bytes": size}, indent=2, ensure_ascii=False))
        return 0
    last = workload.ranks - 1
    files = f"{options.output}.0.et" + (f" to {options.output}.{last}.et" if last else "")
    what = f"{options.kind} of {format_bytes(size)} ({size} bytes)" if size else options.kind
    print(f"{what}: {nodes} nodes in {files}")
    return 0


def _check(options: argparse.Namespace, size: int) -> None:
    """Refuse what no file could hold, and a size too many or too few, before anything is made."""
    if options.bytes is None and options.kind in KINDS and options.kind not in NO_SIZE:
        raise UsageError(f"{options.kind} needs a size", remedy="add --bytes, such as --bytes 1MiB")
    if options.kind == "barrier" and size:
        raise UsageError("barrier moves no bytes", remedy="leave --bytes out")
    if options.ranks > MOST_RANKS:
        raise UsageError(
            f"{options.ranks:,} ranks would be as many files",
            remedy=f"make at most {MOST_RANKS:,} ranks",
        )
    if options.repeat > MOST_NODES:
        raise UsageError(
            f"{options.repeat:,} operations on every rank are too many",
            remedy=f"repeat at most {MOST_NODES:,} times",
        )
