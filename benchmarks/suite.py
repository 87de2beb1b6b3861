"""All of et-sim's speed in one command: whole processes on the inputs of the reference's own measurements.

    python benchmarks/suite.py [--quick] [--only TEXT]

Every row is a process `et-sim run` with warm caches, Python's start included; wall time is the best of two,
memory the peak of the process. Results go to `benchmarks/results.json`, the table to `benchmarks/README.md`,
and the picture of time against NPUs to `docs/scaling.svg`. The reference's times are its own, for the same
inputs on a quiet machine of the same kind; targets are ours.

`--quick` leaves out rows of more than ten million messages and writes nothing.
Not here: the parts by themselves (`start`, `decode`, `engine`).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from math import prod
from pathlib import Path
from typing import Any

from machines import MACHINES
from plot import Series, log_log_svg

import et_sim

HERE = Path(__file__).resolve().parent
ET_SIM = (sys.executable, "-c", "import sys; from et_sim.cli import main; sys.exit(main())")
BEGIN, END = "<!-- suite: begin -->", "<!-- suite: end -->"


@dataclass
class Row:
    """One measured run."""

    name: str
    shape: tuple[int, ...]
    workload: str
    chunks: int = 4
    model: str = "analytical"
    fold: bool = True
    target_s: float | None = None
    reference_s: float | None = None
    large: bool = False
    result: dict[str, Any] = field(default_factory=dict)


def _both(name: str, shape: tuple[int, ...], workload: str, **more: Any) -> list[Row]:
    folded, unfolded = more.pop("targets")
    large = more.pop("large", False)
    return [
        Row(name, shape, workload, target_s=folded, **more),
        Row(name, shape, workload, fold=False, target_s=unfolded, large=large, **more),
    ]


CUBE, RING = (16, 16, 16), (1024,)
ROWS = [
    *_both("16x16x16, 4 chunks", CUBE, "all_reduce", reference_s=2.4, targets=(0.9, 1.3)),
    *_both("16x16x16, 64 chunks", CUBE, "all_reduce", chunks=64, reference_s=46, targets=(1, 6), large=True),
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
        reference_s=129,
        targets=(1.5, 18),
        large=True,
    ),
    *_both(
        "ring of 256, 4 chunks, link model",
        (256,),
        "all_reduce",
        model="link",
        reference_s=0.40,
        targets=(0.8, 0.8),
    ),
    *_both("16 ranks x 20,000 computations", (16,), "chain", reference_s=2.3, targets=(0.8, 0.9)),
    *_both(
        "64 ranks x 500 x (compute, all-reduce)",
        (64,),
        "layers",
        chunks=1,
        reference_s=2.7,
        targets=(0.8, 1.3),
    ),
    Row("1,048,576 NPUs, 64 chunks", (128, 128, 64), "all_reduce", chunks=64, target_s=5),
    Row("16,384 ranks: TP 8, DP 128, PP 16, 64 micro-batches", (8, 128, 16), "job", target_s=30),
    Row("512 ranks x 5,000 nodes, all different", (512,), "distinct", chunks=1, target_s=20, large=True),
    Row("4,096 ranks x 55 nodes, all different", CUBE, "unlike", chunks=1, target_s=3),
]
SCALING = [
    Row(f"scaling {'x'.join(map(str, shape))}", shape, "all_reduce", fold=fold)
    for fold, shapes in (
        (True, [(4,) * 3, (8,) * 3, (16,) * 3, (32,) * 3, (64,) * 3, (128, 128, 64)]),
        (False, [(4,) * 3, (8,) * 3, (16,) * 3, (32,) * 3]),
    )
    for shape in shapes
]
# A ring of 64, and cubes of 8 and 16: medians of the reference itself.
REFERENCE_SCALING = [(64.0, 0.052), (512.0, 0.145), (4096.0, 3.21)]


def run_once(row: Row, folder: Path) -> dict[str, Any]:
    """Wall time, peak memory and summary of one process."""
    prefix = folder / f"{row.workload}-{prod(row.shape)}"
    make = [sys.executable, str(HERE / "workloads.py"), row.workload, str(prefix), str(prod(row.shape))]
    workload = subprocess.run(make, check=True, capture_output=True, text=True).stdout.strip()
    machine_files = MACHINES[row.workload](row.shape, row.chunks)
    for name, content in machine_files.items():
        (folder / name).write_text(json.dumps(content))
    command = [*ET_SIM, "run", workload, "--system", "system.json", "--network", "network.yml"]
    command += ["--network-model", row.model, "--json", "--out", "out", *([] if row.fold else ["--no-fold"])]
    command += ["--groups", "groups.json"] if "groups.json" in machine_files else []
    with (folder / "stdout").open("wb") as stdout, (folder / "stderr").open("wb") as stderr:
        begin = time.perf_counter()
        process = subprocess.Popen(command, cwd=folder, stdout=stdout, stderr=stderr)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begin
    if status:
        raise RuntimeError(f"{row.name}: {(folder / 'stderr').read_text()}")
    summary = json.loads((folder / "stdout").read_text())
    return {
        "wall_s": round(wall, 3),
        "peak_mib": usage.ru_maxrss >> 10,
        "makespan_ns": summary["makespan_ns"],
        "messages": summary["messages"],
        "actors": summary["folded"]["actors"],
        "ranks": summary["folded"]["ranks"],
    }


def measure(row: Row, folder: Path, repeat: int) -> None:
    """The best of several runs; the first one may also warm caches."""
    results = [run_once(row, folder) for _ in range(repeat)]
    row.result = min(results, key=lambda result: float(result["wall_s"]))
    print(f"{row.name:<52} {'folded' if row.fold else 'unfolded':<9} {row.result}", flush=True)


def table(rows: list[Row]) -> str:
    """The rows as a Markdown table."""
    lines = [
        "| input | | wall | target | peak | actors of ranks | messages | per second | reference | ratio |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        result = row.result
        rate = f"{result['messages'] / result['wall_s'] / 1e6:,.1f} M" if result["messages"] else "-"
        reference = f"{row.reference_s:g} s" if row.reference_s else "-"
        ratio = f"{row.reference_s / result['wall_s']:,.1f}x" if row.reference_s else "-"
        cells = (
            row.name,
            "folded" if row.fold else "`--no-fold`",
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
    return "\n".join(lines)


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
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


def write(rows: list[Row], scaling: list[Row], host: dict[str, Any]) -> None:
    """Results, table and picture."""
    content = {"machine": host, "rows": [asdict(row) for row in rows + scaling]}
    (HERE / "results.json").write_text(json.dumps(content, indent=1) + "\n")
    page = HERE / "README.md"
    before, rest = page.read_text().split(BEGIN)
    said = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in host.items())
    after = rest.split(END)[1]
    page.write_text(f"{before}{BEGIN}\nMachine: {said}.\n\n{table(rows)}\n{END}{after}")
    points = {
        fold: [(float(row.result["ranks"]), row.result["wall_s"]) for row in scaling if row.fold is fold]
        for fold in (True, False)
    }
    series = [
        Series("et-sim", "#4c78a8", points[True]),
        Series("et-sim --no-fold", "#f58518", points[False]),
        Series("reference", "#999999", REFERENCE_SCALING),
    ]
    title = "One all-reduce on a torus: seconds for the whole process, against NPUs"
    (HERE.parent / "docs" / "scaling.svg").write_text(log_log_svg(title, series))


def main() -> None:
    """Measure all rows, and write what came out."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="no large rows, and nothing is written")
    parser.add_argument(
        "--only", default="", help="only rows with this text in their name; nothing is written"
    )
    options = parser.parse_args()
    host = machine()
    rows = [row for row in ROWS if options.only in row.name and not (options.quick and row.large)]
    scaling = [] if options.quick or options.only else SCALING
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for model in ("analytical", "link"):
            run_once(Row("warm-up", (4,), "all_reduce", model=model), folder)
        for row in rows + scaling:
            measure(row, folder, 1 if row.large else 2)
    print(table(rows))
    if scaling:
        write(rows, scaling, host)


if __name__ == "__main__":
    main()
