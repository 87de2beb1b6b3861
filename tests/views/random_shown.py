"""Results and views of random runs as digests: `python tests/views/random_shown.py` renews them.

A line of `shown/random-tables.txt` has the end of a run and a digest of each file of its folder, one of
`shown/random-services.txt` those of a serving or a long job, and one of `shown/random-views.txt` digests of
the text, JSON and picture of each view, of the whole run and of a part, and of pages and exports.
"""

from __future__ import annotations

import io
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout
from functools import cache
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

if __name__ == "__main__":
    tests = Path(__file__).parents[1]
    sys.path[:0] = [str(tests), *(str(tests / room) for room in ("fold", "golden", "oracle", "workloads"))]

import pyarrow as pa
import pytest
from random_runs import EAGER, RANDOM
from random_services import SERVICES

from et_sim.api import run
from et_sim.basics.errors import EtSimError
from et_sim.cli import main as command
from et_sim.engine.repeats import search
from et_sim.timeline import write_run
from et_sim.views import open_run
from et_sim.views.run.selection import EVERYTHING, selection
from et_sim.views.view import ALL, VIEWS

SHOWN = Path(__file__).with_name("shown")
WIDTH, NARROW = 100, 56
RUNS_OF_TABLES, RUNS_OF_VIEWS, SERVICES_OF_A_KIND = 24, 4, 48
COMMANDS_OF_RUNS = {
    "page": "report run --html page.html",
    "chrome": "export run --chrome trace.json",
    "perfetto": "export run --perfetto trace.pftrace",
    "compare": "compare run other",
    "pages": "compare run other --html pages.html",
}
COMMANDS_OF_SERVICES = {
    "inspect": "inspect run",
    "picture": "inspect run --svg picture.svg",
    "page": "report run --html page.html",
}
Shown = Callable[[Path], Iterator[tuple[str, Any]]]


def tables(folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield the content of each file of a run."""
    for path in sorted(folder.iterdir()):
        if path.suffix == ".arrow":
            yield path.stem, pa.ipc.open_file(path).read_all().to_pydict()
        else:
            yield (
                path.stem,
                {key: value for key, value in json.loads(path.read_text()).items() if key != "et_sim"},
            )


def views(folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield all forms of each view, of the whole run and of a part of its ranks and its time."""
    found = open_run(folder)
    draw = Random(found.summary["makespan_ns"])
    first = draw.randrange(found.summary["makespan_ns"] + 1)
    window = f"{first}:{draw.randint(first + 1, found.summary['makespan_ns'] + 1)}"
    named = ",".join(map(str, sorted(draw.sample(range(found.summary["ranks"]), 2))))
    part = selection(*draw.choice(((named, window), (named, None), (None, window))), 3)
    for view in VIEWS.values():
        for of, is_cut in ((EVERYTHING, False), (part, True)):
            if not is_cut or view.cuts == ALL:
                width = NARROW if is_cut else WIDTH
                forms = (
                    [lambda of=of, view=view, width=width: view.text(found, of, width)] if view.forms else []
                )
                forms += [lambda of=of, view=view: view.data(found, of)] if view.forms else []
                forms += [lambda of=of, view=view: view.drawn(found, of)] if view.picture else []
                yield view.name + "*" * is_cut, [_or_refusal(form) for form in forms]


def everything(folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield views, and what commands write of a run, beside which lies another one."""
    yield from views(folder)
    yield from _made_by(COMMANDS_OF_RUNS)


def files_and_pages(folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield the content of each file of a serving or a job, and what commands write of it."""
    yield from tables(folder)
    yield from _made_by(COMMANDS_OF_SERVICES)


def _made_by(commands: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """Yield the output of commands that succeed, and the files that they write."""
    os.environ["COLUMNS"] = f"{NARROW}"
    for name, words in commands.items():
        before = {*Path().iterdir()}
        with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()):
            status = command(words.split())
        written = sorted({*Path().iterdir()} - before)
        shown = out.getvalue() if words.startswith(("inspect", "compare", "sql")) else ""
        if status == 0:
            yield name, [shown, *(path.read_text(errors="replace") for path in written if path.is_file())]


def _or_refusal(form: Callable[[], Any]) -> Any:
    try:
        return form()
    except EtSimError as error:
        return str(error)


def line(kind: str, seed: int, shown: Shown) -> str:
    """Return the line of a run, a serving or a job."""
    with tempfile.TemporaryDirectory() as name, chdir(name):
        Path("random").mkdir()  # pages name the folder around a run
        os.chdir("random")
        try:
            end = SERVICES[kind](seed, Path("run")) if kind in SERVICES else _written(kind, seed, Path("run"))
            if shown is everything:
                _written(kind, seed + 1, Path("other"))
        except EtSimError as error:
            return f"{kind} {seed} refused: {' '.join(str(error).split())}"
        return " ".join(
            [f"{kind} {seed} {end}", *(f"{what}={digest(of)}" for what, of in shown(Path("run")))]
        )


def _written(kind: str, seed: int, folder: Path) -> str:
    """Simulate and write a run, and return its end."""
    drawn = RANDOM[kind](seed)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in EAGER.items() if drawn.is_eager else ():
            patch.setattr(search, name, value)
        result = run(drawn.workload, **drawn.options)
    write_run(result, folder)
    skipped = f"skipped={result.outcome.run.repeats[0].skipped} " if drawn.is_eager else ""
    return skipped + (f"{result.makespan_ns} ns" if result.is_complete else "stalls")


def digest(content: Any) -> str:
    """Return a digest of a content, with floats of nine digits."""
    return sha256(json.dumps(_rounded(content), default=str).encode()).hexdigest()[:6]


def _rounded(content: Any) -> Any:
    if isinstance(content, float):
        return f"{content:.9g}"
    if isinstance(content, dict):
        return {key: _rounded(value) for key, value in content.items()}
    return [_rounded(value) for value in content] if isinstance(content, list | tuple) else content


@cache
def kept(name: str) -> dict[tuple[str, int], str]:
    """Return the kept lines by kind and seed."""
    lines = (SHOWN / f"random-{name}.txt").read_text(encoding="utf-8").splitlines()
    return {(text.split()[0], int(text.split()[1])): text for text in lines}


def main() -> None:
    """Write the lines of all runs."""
    os.environ |= {"COLUMNS": f"{WIDTH}", "ET_SIM_COMPILE": "never"}
    renewed = (
        ("tables", tables, RANDOM, RUNS_OF_TABLES),
        ("views", everything, RANDOM, RUNS_OF_VIEWS),
        ("services", files_and_pages, SERVICES, SERVICES_OF_A_KIND),
    )
    for name, shown, kinds, count in renewed:
        lines = [line(kind, seed, shown) for kind in kinds for seed in range(count)]
        (SHOWN / f"random-{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
