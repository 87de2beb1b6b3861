"""Texts and pictures of all views of a few runs: `python tests/views/views_shown.py` renews them.

A change of a view is seen in the difference of its text; of pictures, pages and JSON, digests are kept.
"""

from __future__ import annotations

import io
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from hashlib import sha256
from pathlib import Path

SHOWN = Path(__file__).with_name("shown")
WIDTH = 100
if __name__ == "__main__":
    tests = Path(__file__).parents[1]
    sys.path[:0] = [str(tests), *(str(tests / room) for room in ("workloads", "samples", "sweeps"))]

import sampled_cases  # noqa: E402
import small_sweeps  # noqa: E402
import yaml  # noqa: E402
from machines import ring  # noqa: E402
from runs_to_show import (  # noqa: E402
    congested,
    kernels_on_a_roofline,
    pipeline,
    side_by_side,
    two_dimensions,
)

from et_sim.basics.errors import EtSimError  # noqa: E402
from et_sim.cli import main as command  # noqa: E402
from et_sim.trace import write_workload  # noqa: E402
from et_sim.views import open_run  # noqa: E402
from et_sim.views.run.directory import RunDirectory  # noqa: E402
from et_sim.views.run.selection import EVERYTHING, Selection  # noqa: E402
from et_sim.views.view import ALL, VIEWS, View  # noqa: E402

RUNS: dict[str, Callable[[Path], Path]] = {
    "pipeline": lambda folder: pipeline(folder, detail="path"),
    "two-dimensions": lambda folder: two_dimensions(folder, detail="phases,links", model="link"),
    "side-by-side": side_by_side,
    "congested": congested,
    "kernels": kernels_on_a_roofline,
}


def shown(run: RunDirectory, folder: str) -> Iterator[tuple[str, str]]:
    """Yield name and text of each view, whole and in part; pictures and JSON as digests."""
    end = run.summary["makespan_ns"]
    parts = {"": EVERYTHING, " in part": Selection(ranks=(range(2),), window=(end // 4, end // 2), top=2)}
    for view in VIEWS.values():
        for name, part in parts.items():
            if part is EVERYTHING or view.cuts == ALL:
                texts = "\n".join(_texts(view, run, part))
                yield view.name + name, texts.replace(folder, "FOLDER")


def _texts(view: View, run: RunDirectory, part: Selection) -> Iterator[str]:
    try:
        if view.forms:
            yield view.text(run, part, WIDTH)
            yield f"JSON {_digest(json.dumps(view.data(run, part)))}"
        if view.picture:
            yield f"picture {_digest(view.drawn(run, part))}"
    except EtSimError as error:
        yield str(error)


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:12]


def text_of(name: str, folder: Path) -> str:
    """Return the views of a run, made in a folder."""
    run = open_run(RUNS[name](folder / name))
    return "\n".join(f"== {view}\n{text}\n" for view, text in shown(run, str(folder)))


COMMANDS = """
run job --system sys.json --network net.yml --out plain
run job --system sys.json --network net.yml --out varied --samples 12 --seed 3
inspect plain --top 3
inspect plain ops --json
inspect varied samples
inspect varied samples --svg samples.svg
inspect plain picture --svg picture.svg
report plain --html plain.html
report varied --html varied.html
export plain --perfetto plain.pftrace
export plain --chrome plain.json
compare plain varied
compare plain varied --html both.html
sweep rings.yml --out swept
inspect swept
inspect swept --svg swept.svg
report swept --html swept.html
goodput months.json --days 20 --runs 8 --out months
inspect months
inspect months --svg months.svg
network net.yml --path 0:2 --svg network.svg
network graph.yml --path 0:5 --svg graph.svg
"""
LINK = {"bandwidth": "100Gbps", "latency": "200ns"}
MONTHS = {
    "step": "5s",
    "tokens-of-step": 4_000_000,
    "gpus": 2048,
    "failures": {"preset": "rsc-1"},
    "spares": {"hot": 4},
    "checkpoints": {"bytes": "1TB", "interval": "30min"},
}


def text_of_commands(folder: Path) -> str:
    """Return what the commands print in a folder, with the digests of pictures and pages that they write."""
    write_workload(sampled_cases.pipeline([4000, 5000, 6000], 4), folder / "job")
    (folder / "net.yml").write_text(yaml.safe_dump(ring(3)), encoding="utf-8")
    graph = {"graph": {"generator": "leaf-spine", "leaves": 2, "spines": 2, "npus-per-leaf": 4, **LINK}}
    (folder / "graph.yml").write_text(yaml.safe_dump(graph), encoding="utf-8")
    (folder / "sys.json").write_text(json.dumps({"variation": [sampled_cases.VARIED]}), encoding="utf-8")
    (folder / "months.json").write_text(json.dumps(MONTHS), encoding="utf-8")
    small_sweeps.write(folder)
    texts = []
    for line in COMMANDS.split("\n")[1:-1]:
        before = {path: path.stat().st_mtime_ns for path in folder.iterdir() if path.is_file()}
        with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()):
            status = command(line.split())
        files = [path for path in sorted(folder.iterdir()) if path.is_file()]
        written = [path for path in files if before.get(path) != path.stat().st_mtime_ns]
        digests = [f"{path.name} {_digest(path.read_text(errors='replace'))}" for path in written]
        shown = out.getvalue() if line.startswith(("inspect", "compare", "network")) else ""
        texts.append("\n".join([f"== {line}: {status}", shown, *digests]))
    return "\n".join(texts).replace(str(folder), "FOLDER") + "\n"


def main() -> None:
    """Write the views of all runs."""
    SHOWN.mkdir(exist_ok=True)
    os.environ["COLUMNS"] = str(WIDTH)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for run in RUNS:
            (SHOWN / f"{run}.txt").write_text(text_of(run, folder), encoding="utf-8")
        (folder / "commands").mkdir()
        os.chdir(folder / "commands")
        (SHOWN / "commands.txt").write_text(text_of_commands(Path.cwd()), encoding="utf-8")


if __name__ == "__main__":
    main()
