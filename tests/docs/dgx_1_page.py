"""The table of docs/dgx-1.md: simulated all-reduces beside measured ones: python tests/docs/dgx_1_page.py

Machines are those that the page describes; the measurements are in `tests/golden/data/nccl_v100.json`.
"""

from __future__ import annotations

import json
import math
import re
from functools import cache
from typing import Any

from transcripts import REPOSITORY

import et_sim
from et_sim.machine.texts import parse_yaml
from et_sim.trace import TraceBuilder, Workload

PAGE = REPOSITORY / "docs" / "dgx-1.md"
MEASURED = REPOSITORY / "tests" / "golden" / "data" / "nccl_v100.json"
FILE = re.compile(r"^\$ cat > (\S+) <<END\n((?:> .*\n)*?)> END\n", re.MULTILINE)
TABLE = re.compile(r"(<!-- table: begin -->\n).*?(<!-- table: end -->)", re.DOTALL)
MACHINES = {8: "dgx-1", 4: "half"}
MODELS = ("link", "flow")
SMALLEST_OF_LARGE = 16 << 20
HEAD = """\
| | 8 GPUs: measured | `link` | | `flow` | | 4 GPUs: measured | `link` | | `flow` | |
|---|---|---|---|---|---|---|---|---|---|---|
"""


@cache
def errors() -> dict[tuple[int, int], tuple[float, dict[str, float]]]:
    """Return, by bytes and GPUs, the measured microseconds, and the simulated ones by model."""
    text = PAGE.read_text(encoding="utf-8")
    files = {name: content.replace("\n> ", "\n")[2:] for name, content in FILE.findall(text)}
    results = {}
    for table in json.loads(MEASURED.read_text(encoding="utf-8")):
        gpus, name = table["gpus"], MACHINES[table["gpus"]]
        machine = {
            "network": parse_yaml(files[f"{name}.yml"], "the page"),
            "system": json.loads(files[f"{name}.json"]),
        }
        for size, measured in table["rows"]:
            if size.bit_count() == 1:
                of_models = {model: _microseconds(gpus, size, model, machine) for model in MODELS}
                results[size, gpus] = (measured, of_models)
    return results


def _microseconds(gpus: int, size: int, model: str, machine: dict[str, Any]) -> float:
    build = TraceBuilder()
    build.collective("all_reduce", size)
    workload = Workload.of([build.build()] * gpus)
    return et_sim.simulate(workload, model=model, **machine).makespan_ns / 1000


def page() -> str:
    """Return the page with today's table."""
    result = errors()
    sizes = sorted({size for size, _ in result})
    rows = [_row(f"{size >> 20} MiB", [result[size, gpus] for gpus in MACHINES]) for size in sizes]
    for name, some in (
        ("mean error, 16 MiB and more", [size for size in sizes if size >= SMALLEST_OF_LARGE]),
        ("below", [size for size in sizes if size < SMALLEST_OF_LARGE]),
    ):
        rows.append(_means(name, [[result[size, gpus] for size in some] for gpus in MACHINES]))
    table = HEAD + "\n".join(rows) + "\n"
    return TABLE.sub(lambda match: match[1] + table + match[2], PAGE.read_text(encoding="utf-8"))


def _row(name: str, pairs: list[tuple[float, dict[str, float]]]) -> str:
    cells = [name]
    for measured, simulated in pairs:
        cells.append(_shown(measured))
        for model in MODELS:
            cells += [_shown(simulated[model]), f"{100 * (simulated[model] / measured - 1):+.1f} %"]
    return "| " + " | ".join(cells) + " |"


def _means(name: str, of_gpus: list[list[tuple[float, dict[str, float]]]]) -> str:
    """Return a row of mean errors: the exponential of the mean distance of logarithms, less one."""
    cells = [name]
    for pairs in of_gpus:
        cells.append("")
        for model in MODELS:
            distances = [abs(math.log(simulated[model] / measured)) for measured, simulated in pairs]
            cells += ["", f"{100 * (math.exp(sum(distances) / len(distances)) - 1):.1f} %"]
    return "| " + " | ".join(cells) + " |"


def _shown(microseconds: float) -> str:
    return f"{microseconds:,.0f} µs" if microseconds >= 100 else f"{microseconds:.1f} µs"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
