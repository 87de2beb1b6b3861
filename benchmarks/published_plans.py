"""Published training plans, measured and simulated: writes the table of docs/published-plans.md.

`python benchmarks/published_plans.py` makes and runs every row of published_plans.json and writes the table.
`--rows 1,13` takes some of them, and `--json` prints a line for each row and writes nothing. A row whose run
ends after `--seconds` is printed without figures.

Operations of a step are counted as `et-sim run` counts them, each query with all keys (full), and with the
keys that it sees only (causal); measured figures in TFLOP/s are compared with the first, whichever is nearer.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from msgspec import convert

from et_sim.workloads import Model, Plan
from et_sim.workloads.training.attention import sight_of

ROOT = Path(__file__).parents[1]
ROWS = Path(__file__).with_suffix(".json")
PAGE = ROOT / "docs" / "published-plans.md"
BEGIN, END = "<!-- plans: begin -->", "<!-- plans: end -->"
SECONDS = 300


def rows() -> list[dict[str, Any]]:
    """Return the published plans, in the order of the page."""
    content: list[dict[str, Any]] = json.loads(ROWS.read_text(encoding="utf-8"))
    return content


def commands(row: dict[str, Any]) -> tuple[str, str]:
    """Return what makes the job of a row, and what runs it."""
    make = f"et-sim make {row['make']} -o job"
    return make, f"et-sim run job.workload.json --machine {row['machine']} --when-full report"


def run(row: dict[str, Any], seconds: float = SECONDS) -> dict[str, Any]:
    """Return the figures of a simulated row; those that took too long are missing."""
    make, simulate = commands(row)
    with tempfile.TemporaryDirectory() as folder:
        try:
            made = _printed(f"{make} --json", folder, seconds)
            summary = _printed(f"{simulate} --out out --json", folder, seconds)
        except subprocess.TimeoutExpired:
            return {"name": row["name"], "status": f"ended after {seconds:g} s"}
    return {"name": row["name"], "status": "simulated", **figures(row, made, summary)}


def _printed(command: str, folder: str, seconds: float) -> dict[str, Any]:
    words = [
        sys.executable,
        "-c",
        "import sys, et_sim.cli; sys.exit(et_sim.cli.main())",
        *shlex.split(command)[1:],
    ]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=seconds, check=False)
    if done.returncode:
        raise SystemExit(f"{command}\n{done.stderr}")
    content: dict[str, Any] = json.loads(done.stdout)
    return content


def figures(row: dict[str, Any], made: dict[str, Any], summary: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of a run for a row, in the unit of the measurement, too."""
    model, rates = convert(made["model"], Model), summary["throughput"]
    seconds, full = summary["makespan_ns"] / 1e9, rates["tflops_per_rank"]
    each = full * 1e12 * summary["ranks"] * seconds / (rates["tokens"] / model.sequence)  # of a sequence
    band = summary.get("uncertainty", {})
    in_unit = {
        "s": seconds,
        "TFLOP/s": full,
        "samples/s": rates["tokens"] / model.sequence / seconds,
        "GPU hours per 10^12 tokens": summary["ranks"] * seconds / 3600 * 1e12 / rates["tokens"],
    }
    simulated, measured = in_unit[row["unit"]], row["measured"]
    return {
        "unit": row["unit"],
        "measured": measured,
        "simulated": simulated,
        "error_percent": 100 * (simulated / measured - 1),
        "step_s": seconds,
        "low_s": band.get("low_ns", 0) / 1e9,
        "high_s": band.get("high_ns", 0) / 1e9,
        "tflops_full": full,
        "tflops_causal": full * (1 - _masked(model) / each),
        "is_in_memory": summary.get("out_of_memory") is None,
    }


def _masked(model: Model) -> int:
    """Return the operations of scores that a causal mask hides, of a sequence, as a step counts them."""
    length, attention = model.sequence, model.attention
    hidden = sum(
        length * (model.window(layer) or length) - sight_of(model, Plan(), model.window(layer)).pairs(length)
        for layer in range(model.layers)
        if model.has_attention(layer)
    )
    return 6 * hidden * attention.heads * (attention.query_size + attention.value_size)


def line(number: int, row: dict[str, Any], result: dict[str, Any]) -> str:
    """Return the row of the page's table."""
    measured = f"{row['measured']:,g} {row['unit']}"
    if result["status"] != "simulated":
        return f"| {number} | {row['name']} | {measured} | {result['status']} | - | - | - |"
    note = "" if result["is_in_memory"] else " (memory full)"
    simulated = (
        f"{result['simulated']:,.4g} {row['unit']}"
        if result["simulated"] < 1e4
        else (f"{result['simulated']:,.0f} {row['unit']}")
    )
    return (
        f"| {number} | {row['name']} | {measured} | {simulated}{note} | {result['error_percent']:+.1f} % |"
        f" {result['low_s']:.3g} to {result['high_s']:.3g} s |"
        f" {result['tflops_full']:.0f}, {result['tflops_causal']:.0f} |"
    )


def table(results: list[dict[str, Any]]) -> str:
    """Return the table of all rows, and what each was made with."""
    heads = ("", "plan", "measured", "simulated", "error", "band of the step", "TFLOP/s a GPU: full, causal")
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    lines += [line(at, row, result) for at, (row, result) in enumerate(zip(rows(), results, strict=True), 1)]
    for at, row in enumerate(rows(), 1):
        other = f" {row['other']}." if "other" in row else ""
        lines += ["", f"{at}. {row['name']}: {row['source']}. Assumed: {row['assumed']}.{other}", ""]
        lines += ["```sh", *commands(row), "```"]
    return "\n".join(lines)


def write(results: list[dict[str, Any]], page: Path = PAGE) -> None:
    """Write the table into the page."""
    text = page.read_text(encoding="utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    page.write_text(f"{before}{BEGIN}\n{table(results)}\n{END}{after}", encoding="utf-8")


def main() -> None:
    """Run the chosen rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", help="numbers of rows, counted from 1")
    parser.add_argument("--json", action="store_true", help="print a line for each row; write nothing")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for each command of a row")
    options = parser.parse_args()
    chosen = [int(word) for word in options.rows.split(",")] if options.rows else range(1, len(rows()) + 1)
    results = []
    for number in chosen:
        results.append({"row": number, **run(rows()[number - 1], options.seconds)})
        print(json.dumps(results[-1]), flush=True)
    if not (options.json or options.rows):
        write(results)


if __name__ == "__main__":
    main()
