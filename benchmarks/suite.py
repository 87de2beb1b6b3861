"""All of et-sim's speed in one command: whole processes on the inputs of the reference's own measurements.

    python benchmarks/suite.py [--quick] [--only TEXT] [--reference PATH] [--reference-aware PATH]

Every row is a process `et-sim run`, Python's start included, of which the one that took least processor time
of two counts, so that neither compiling nor other work on the machine does; memory is the peak of the
process. Results go to `benchmarks/results.json`, the table to `benchmarks/README.md`, and the picture of how
time grows to `docs/scaling.svg`. Targets are ours.

With the reference's binary (ASTRA-sim with its analytical network; `--reference` is the one without
congestion, `--reference-aware` the one with it), each row is measured by turns with it on the same inputs.
Without, the times in the table are the reference's own: the least processor time on another machine of the
same kind, which was quiet.

`--quick` leaves out rows of more than ten million messages and writes nothing.
Not here: how processes are measured (`processes`), the parts by themselves (`start`, `decode`, `engine`).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from math import prod
from pathlib import Path
from typing import Any

from machines import MACHINES
from msgspec import Struct, field
from msgspec.structs import asdict
from plot import Panel, Series, log_log_svg
from processes import ET_SIM, ProcessError, Reference, run_measured

import et_sim

HERE = Path(__file__).resolve().parent
MOST_RANKS_OF_REFERENCE = 4096
DOUBT = 1.5  # of times from another machine of the same kind
ELSEWHERE = " \\*"
FROM_ELSEWHERE = (
    f"\\* Of another machine of the same kind, so that the ratio is uncertain by a factor of {DOUBT}."
)
BEGIN, END = "<!-- suite: begin -->", "<!-- suite: end -->"


class Row(Struct):
    """One measured run."""

    name: str
    shape: tuple[int, ...]
    workload: str
    chunks: int = 4
    model: str = "analytical"
    fold: bool = True
    amount: int = 0  # what the workload does, instead of its usual
    target_s: float | None = None
    reference_s: float | None = None  # of the processor
    is_beside: bool = False  # the reference was measured by turns with the row
    large: bool = False
    machine: str = ""  # by default that of the workload
    result: dict[str, Any] = field(default_factory=dict)

    @property
    def is_for_reference(self) -> bool:
        """Check that the reference has the model, and accepts a file for each rank."""
        has_model = self.model == "analytical" or (self.model == "link" and len(self.shape) == 1)
        return has_model and prod(self.shape) <= MOST_RANKS_OF_REFERENCE


def _both(name: str, shape: tuple[int, ...], workload: str, **more: Any) -> list[Row]:
    folded, unfolded = more.pop("targets")
    large = more.pop("large", False)
    return [
        Row(name, shape, workload, target_s=folded, **more),
        Row(name, shape, workload, fold=False, target_s=unfolded, large=large, **more),
    ]


CUBE, RING = (16, 16, 16), (1024,)
ROWS = [
    *_both("16x16x16, 4 chunks", CUBE, "all_reduce", reference_s=2.34, targets=(0.9, 1.3)),
    *_both(
        "16x16x16, 64 chunks", CUBE, "all_reduce", chunks=64, reference_s=41.4, targets=(1, 0.5), large=True
    ),
    *_both(
        "ring of 1024, 64 chunks",
        RING,
        "all_reduce",
        chunks=64,
        reference_s=93,
        targets=(1.5, 14),
        large=True,
    ),
    *_both(
        "ring of 1024, 64 chunks, link model",
        RING,
        "all_reduce",
        chunks=64,
        model="link",
        reference_s=129.2,
        targets=(1.5, 18),
        large=True,
    ),
    *_both(
        "ring of 256, 4 chunks, link model",
        (256,),
        "all_reduce",
        model="link",
        reference_s=0.385,
        targets=(0.8, 0.8),
    ),
    *_both("16 ranks x 20,000 computations", (16,), "chain", reference_s=2.2, targets=(0.8, 0.9)),
    *_both(
        "64 ranks x 500 x (compute, all-reduce)",
        (64,),
        "layers",
        chunks=1,
        reference_s=2.63,
        targets=(0.8, 1.3),
    ),
    Row("1,048,576 NPUs, 64 chunks", (128, 128, 64), "all_reduce", chunks=64, target_s=5),
    Row("16,384 ranks: TP 8, DP 128, PP 16, 64 micro-batches", (8, 128, 16), "job", target_s=30),
    Row("512 ranks x 5,000 nodes, all different", (512,), "distinct", chunks=1, target_s=20, large=True),
    Row("4,096 ranks x 55 nodes, all different", CUBE, "unlike", chunks=1, target_s=3),
]


class Growth(Struct, frozen=True):
    """Rows that differ in how much there is of one thing."""

    noun: str
    title: str
    rows: list[Row]
    amount: Callable[[Row], float]
    known: tuple[tuple[float, float], ...] = ()  # of the reference, where it is not measured


def _growing(name: str, shapes: list[tuple[int, ...]], amounts: list[int], **more: Any) -> list[Row]:
    each = [(shape, amount) for shape in shapes for amount in amounts]
    return [
        Row(f"{name}, {'x'.join(map(str, shape))}, {amount or 'usual'}", shape, amount=amount, **more)
        for shape, amount in each
    ]


CUBES: list[tuple[int, ...]] = [(4,) * 3, (8,) * 3, CUBE, (32,) * 3]
LARGER: list[tuple[int, ...]] = [(64,) * 3, (128, 128, 64)]
GROWTHS = [
    Growth(
        "NPUs",
        "One all-reduce on a torus",
        [
            *_growing("NPUs", [*CUBES, *LARGER], [0], workload="all_reduce"),
            *_growing("NPUs", CUBES, [0], workload="all_reduce", fold=False),
        ],
        lambda row: float(row.result["ranks"]),
        # A ring of 64, and cubes of 8 and 16: the reference itself, on another machine of the same kind.
        ((64.0, 0.027), (512.0, 0.118), (4096.0, 2.34)),
    ),
    Growth(
        "messages",
        "An all-reduce of 4,096 NPUs in 1 to 64 chunks",
        [
            row
            for fold in (True, False)
            for chunks in (1, 4, 16, 64)
            for row in _growing(
                f"messages, {chunks} chunks", [CUBE], [0], workload="all_reduce", chunks=chunks, fold=fold
            )
        ],
        lambda row: float(row.result["messages"]),
    ),
    Growth(
        "nodes",
        "Computations of 16 ranks",
        [
            row
            for fold in (True, False)
            for row in _growing("nodes", [(16,)], [1_000, 10_000, 100_000], workload="chain", fold=fold)
        ],
        lambda row: float(row.result["ranks"] * row.amount),
    ),
    Growth(
        "packets",
        "An all-reduce of 8 NPUs on a star, each packet simulated",
        _growing(
            "packets",
            [(8,)],
            [1 << 20, 1 << 23, 1 << 26],
            workload="all_reduce",
            model="packet",
            machine="star",
            chunks=1,
            fold=False,
        ),
        lambda row: float(row.result["packets"]),
    ),
]


def run_once(row: Row, folder: Path, reference: Reference | None = None) -> dict[str, Any]:
    """Return times, peak memory and summary of one process, and the reference's times if it ran after it."""
    prefix = folder / f"{row.workload}-{prod(row.shape)}-{row.amount}"
    make = [sys.executable, str(HERE / "workloads.py"), row.workload, str(prefix), str(prod(row.shape))]
    make += [str(row.amount)] if row.amount else []
    workload = subprocess.run(make, check=True, capture_output=True, text=True).stdout.strip()
    machine_files = MACHINES[row.machine or row.workload](row.shape, row.chunks)
    (folder / "groups.json").unlink(missing_ok=True)
    for name, content in machine_files.items():
        (folder / name).write_text(json.dumps(content))
    command = [*ET_SIM, "run", workload, "--system", "system.json", "--network", "network.yml"]
    command += ["--network-model", row.model, "--json", "--out", "out", *([] if row.fold else ["--no-fold"])]
    command += ["--groups", "groups.json"] if "groups.json" in machine_files else []
    measured = run_measured(command, folder, f"{row.name}: et-sim")
    summary = json.loads((folder / "stdout").read_text())
    result = {
        **asdict(measured),
        "makespan_ns": summary["makespan_ns"],
        "messages": summary["messages"],
        "actors": summary["folded"]["actors"],
        "ranks": summary["folded"]["ranks"],
    }
    if row.model == "packet":
        result["packets"] = summary["packets"]["sent"]
    if reference is not None and row.model in reference.binaries and row.is_for_reference:
        result["reference"] = asdict(reference.measure(row.model, Path(workload), folder))
    return result


def measure(row: Row, folder: Path, repeat: int, reference: Reference | None = None) -> None:
    """Return the best of several runs, by turns with the reference; the first one may make machine code."""
    results = [run_once(row, folder, reference) for _ in range(repeat)]
    row.result = min(results, key=lambda result: float(result["processor_s"]))
    beside = [result["reference"]["processor_s"] for result in results if "reference" in result]
    if beside:
        row.reference_s, row.is_beside = min(beside), True
    print(f"{row.name:<52} {'folded' if row.fold else 'unfolded':<9} {row.result}", flush=True)


def table(rows: list[Row]) -> str:
    """Return the rows as a Markdown table."""
    lines = [
        "| input | | processor | wall | target | peak | actors of ranks | messages | per second | reference"
        " | ratio |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        result = row.result
        seconds = result["processor_s"]
        rate = f"{result['messages'] / seconds / 1e6:,.1f} M" if result["messages"] else "-"
        mark = "" if row.is_beside else ELSEWHERE
        reference = f"{row.reference_s:g} s{mark}" if row.reference_s else "-"
        ratio = f"{row.reference_s / seconds:,.1f}x{mark}" if row.reference_s else "-"
        cells = (
            row.name,
            "folded" if row.fold else "`--no-fold`",
            f"{seconds:.2f} s",
            f"{result['wall_s']:.2f} s",
            f"{row.target_s:g} s" if row.target_s else "-",
            f"{result['peak_mib']} MiB",
            f"{result['actors']:,} of {result['ranks']:,}",
            f"{result['messages']:,}",
            rate,
            reference,
            ratio,
        )
        lines.append("| " + " | ".join(cells) + " |")
    is_elsewhere = any(row.reference_s and not row.is_beside for row in rows)
    return "\n".join([*lines, *(["", FROM_ELSEWHERE] if is_elsewhere else [])])


def machine() -> dict[str, Any]:
    """Return the machine on which the figures were measured."""
    described = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":")[1].strip() for line in described if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    return {
        "cpu": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "memory_gib": memory,
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "numba": version("numba"),
        "numpy": version("numpy"),
        "et_sim": et_sim.__version__,
    }


def picture(growths: list[Growth]) -> str:
    """Draw the growth of time with ranks, messages, nodes and packets, side by side."""
    panels = []
    for growth in growths:
        of_fold = {
            fold: [
                (growth.amount(row), float(row.result["processor_s"]))
                for row in growth.rows
                if row.fold is fold
            ]
            for fold in (True, False)
        }
        beside = [(growth.amount(row), row.reference_s) for row in growth.rows if row.is_beside]
        measured = sorted({amount: seconds for amount, seconds in beside if seconds}.items())
        series = [
            Series("et-sim", "#4c78a8", of_fold[True]),
            Series("et-sim --no-fold", "#f58518", of_fold[False]),
            Series("reference" if measured else "reference, elsewhere", "#999999", measured or growth.known),
        ]
        panels.append(Panel(growth.title, growth.noun, [one for one in series if one.points]))
    return log_log_svg("Processor seconds of the whole process", panels)


def write(rows: list[Row], growths: list[Growth], host: dict[str, Any], root: Path) -> None:
    """Write results, table and picture below the root of the project."""
    content = {
        "machine": host,
        "rows": [asdict(row) for row in [*rows, *(each for of in growths for each in of.rows)]],
    }
    (root / "benchmarks" / "results.json").write_text(json.dumps(content, indent=1) + "\n")
    page = root / "benchmarks" / "README.md"
    before, rest = page.read_text().split(BEGIN)
    said = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in host.items())
    after = rest.split(END)[1]
    page.write_text(f"{before}{BEGIN}\nMachine: {said}.\n\n{table(rows)}\n{END}{after}")
    (root / "docs" / "scaling.svg").write_text(picture(growths))


def main() -> None:
    """Measure all rows, and write what came out."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="no large rows, and nothing is written")
    parser.add_argument(
        "--only", default="", help="only rows with this text in their name; nothing is written"
    )
    parser.add_argument(
        "--reference", metavar="PATH", type=Path, help="the congestion-unaware binary of the reference"
    )
    parser.add_argument(
        "--reference-aware", metavar="PATH", type=Path, help="its congestion-aware binary, for the link model"
    )
    options = parser.parse_args()
    try:
        _measure_all(options)
    except ProcessError as error:
        sys.exit(f"suite.py: error: {error}")


def _measure_all(options: argparse.Namespace) -> None:
    reference = Reference.of(options.reference, options.reference_aware)
    host = machine()
    rows = [row for row in ROWS if options.only in row.name and not (options.quick and row.large)]
    growths = [] if options.quick or options.only else GROWTHS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for model in reference.binaries:  # one that does not run is refused first
            run_once(Row("first", (4,), "all_reduce", model=model), folder, reference)
        for row in [*rows, *(each for growth in growths for each in growth.rows)]:
            measure(row, folder, 2, reference)
    print(table(rows))
    if growths:
        write(rows, growths, host, HERE.parent)


if __name__ == "__main__":
    main()
