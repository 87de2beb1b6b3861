"""Results and views of random runs as digests: `python tests/views/random_shown.py` renews them.

A line of `shown/random-tables.txt` or `shown/random-keys.txt` has the end of a run and a digest of each file
of its folder, one of `shown/random-services.txt` those of a serving or a long job, and one of
`shown/random-views.txt` digests of the text, JSON and picture of each view, of the whole run and of a part,
and of pages and exports; one of `shown/random-texts.txt` has the text of each view of a run alone. A line of
`shown/random-commands.txt` has the status of a command, and digests of what it prints and of its files.

Digests leave out all that differs between computers or releases: the version, digests of sources, the order
of keys, digits of fractions from the tenth on, and the compression of pictures. Bands are in them.
"""

from __future__ import annotations

import base64
import io
import json
import os
import re
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout
from functools import cache
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

if __name__ == "__main__":
    tests = Path(__file__).parents[1]
    sys.path[:0] = [
        str(tests),
        *(
            str(tests / room)
            for room in ("fold", "fuzz", "golden", "network", "oracle", "sweeps", "workloads")
        ),
    ]

import pyarrow as pa
import pytest
from random_commands import called
from random_keys import KEYED
from random_lines import LINES
from random_runs import RANDOM, SMALL
from random_services import SERVICES
from random_special import SPECIAL

from et_sim.basics.errors import EtSimError
from et_sim.cli import main as command
from et_sim.timeline import OutputFilter, write_run
from et_sim.views import open_run
from et_sim.views.run.selection import EVERYTHING, selection
from et_sim.views.view import ALL, VIEWS

SHOWN = Path(__file__).with_name("shown")
WIDTH, NARROW = 100, 56
# Rules are changed one at a time: cases that run the changed module, or all of a kind, are tried.
IS_CHANGED = "ET_SIM_TESTS_ONE_IN" in os.environ
CHOSEN = "ET_SIM_TESTS_RUNS"  # names of the runs of a changed module, with spaces between
DAYS = 3  # which together check all lines
# Every third pair of lines runs on a day; one run of a pair has small tables.
IN_TURN = pytest.mark.parametrize(
    "day",
    [
        pytest.param(day, marks=[pytest.mark.deep, pytest.mark.in_turn(days=DAYS, day=day)])
        for day in range(DAYS)
    ],
)
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
OF_OTHERS = ("views", "texts")
OF_TEXTS = [kind for kind in (*KEYED, *SPECIAL) if kind != "libraries"]  # those would take long
LEFT_OUT = {"et_sim", "sha256", "accuracy"}
OF_PROCESSES = {"journal.jsonl", "lock", "times.arrow"}  # of a sweep
_VERSION = re.compile(r"(et[-_]sim[^\d]{1,16})\d+(?:\.\d+)+\w*")
_PNG = re.compile(r"(?<=data:image/png;base64,)[\w+/=]+")
_FRACTION = re.compile(r"(?<!\d)\d+(?:\.\d{7,}(?:e[-+]\d+)?|(?:\.\d+)?e-\d+)")
ZERO = 1e-12  # what is closer to zero may be the error of a sum


def tables(folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield the content of each file of a run."""
    for path in sorted(folder.iterdir()):
        if path.suffix == ".arrow":
            yield path.stem, pa.ipc.open_file(path).read_all().to_pydict()
        else:
            yield path.stem, json.loads(path.read_text(encoding="utf-8"))


def tables_with_metadata(folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield the content of each file of a run, and what the metadata of its tables add."""
    yield from tables(folder)
    schemas = {path.stem: pa.ipc.open_file(path).schema for path in sorted(folder.glob("*.arrow"))}
    metadata = {
        name: {key.decode(): text.decode() for key, text in schema.metadata.items() if b"et-sim" not in key}
        for name, schema in schemas.items()
    }
    yield "metadata", {name: about for name, about in metadata.items() if about}


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


def texts(folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield the text of each view of the whole run."""
    found = open_run(folder)
    for view in VIEWS.values():
        if view.forms:
            yield view.name, _or_refusal(lambda view=view: view.text(found, EVERYTHING, WIDTH))


def everything(folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield views, and what commands write of a run, beside which lies another one."""
    yield from views(folder)
    yield from _made_by(COMMANDS_OF_RUNS)


def files_and_pages(folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield the content of each file of a serving or a job, and what commands write of it."""
    yield from tables(folder)
    yield from _made_by(COMMANDS_OF_SERVICES)


def printed_and_written(folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield what a command prints, and the files that it writes, together."""
    written = {
        str(path.relative_to(folder)): _content(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in OF_PROCESSES
    }
    yield "printed", written.pop("printed.json")
    yield "files", written


def _content(path: Path) -> Any:
    match path.suffix:
        case ".arrow":
            return pa.ipc.open_file(path).read_all().to_pydict()
        case ".json":
            return json.loads(path.read_text(encoding="utf-8"))
        case ".et" | ".pftrace":
            return path.read_bytes().hex()
    return path.read_text(encoding="utf-8")


def _made_by(commands: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """Yield the output of commands that succeed, and the files that they write."""
    for name, words in commands.items():
        before = {*Path().iterdir()}
        with (
            pytest.MonkeyPatch.context() as patch,
            redirect_stdout(io.StringIO()) as out,
            redirect_stderr(io.StringIO()),
        ):
            patch.setenv("COLUMNS", f"{NARROW}")
            status = command(words.split())
        written = sorted({*Path().iterdir()} - before)
        shown = out.getvalue() if words.startswith(("inspect", "compare")) else ""
        if status == 0:
            yield name, [shown, *(path.read_text("utf-8", "replace") for path in written if path.is_file())]


def _or_refusal(form: Callable[[], Any]) -> Any:
    try:
        return form()
    except EtSimError as error:
        return str(error)


def line(kind: str, seed: int, shown: Callable[[Path], Iterator[tuple[str, Any]]]) -> str:
    """Return the line of a run, a serving or a job."""
    with (
        tempfile.TemporaryDirectory() as name,
        chdir(name),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("ET_SIM_COMPILE", "never")
        patch.setenv("COLUMNS", f"{WIDTH}")
        # A checkout's sources contain its commit, and points and folders of sweeps are named by their digest.
        patch.setattr("et_sim.sweeps.space.program_digest", lambda: "sources")
        Path("random").mkdir()  # pages name the folder around a run
        os.chdir("random")
        try:
            end = _made(kind, seed, Path("run"))
            if shown is everything:
                _written(kind, seed + 1, Path("other"))
        except EtSimError as error:
            return f"{kind} {seed} refused: {' '.join(str(error).split())}"
        return " ".join(
            [f"{kind} {seed} {end}", *(f"{what}={digest(of)}" for what, of in shown(Path("run")))]
        )


def _made(kind: str, seed: int, folder: Path) -> str:
    """Make the results of a seed, and return how they end."""
    if kind in LINES:
        draw = Random(f"{kind} {seed}")
        return called(LINES[kind](draw), draw, folder)
    return SERVICES[kind](seed, folder) if kind in SERVICES else _written(kind, seed, folder)


def _written(kind: str, seed: int, folder: Path) -> str:
    """Simulate and write a run, and return its end."""
    drawn = (RANDOM | KEYED | SPECIAL)[kind](seed)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**drawn.patched, **(SMALL if seed % 2 else {})}.items():
            patch.setattr(name, value)
        result = drawn.run()
        if kind not in RANDOM:
            result.save(folder)
        else:
            write_run(result, folder, output_filter=OutputFilter(drawn.written))
    if result.stall is not None and kind not in RANDOM:
        (folder / "report.json").write_text(json.dumps(result.stall.text), encoding="utf-8")
    if drawn.beside is not None:
        drawn.beside(folder)
    figures = f"{drawn.figures(result)} " if drawn.figures is not None else ""
    return figures + (f"{result.makespan_ns} ns" if result.is_complete else "stalls")


def digest(content: Any) -> str:
    """Return a digest of what does not differ between computers, with fractions of nine digits."""
    return sha256(json.dumps(steady(content), sort_keys=True).encode()).hexdigest()[:6]


def steady(content: Any) -> Any:
    """Return a content without what differs between computers or releases."""
    if isinstance(content, float):
        return _rounded(content)
    if isinstance(content, str):
        text = _PNG.sub(_pixels, _VERSION.sub(r"\1", content))
        return _FRACTION.sub(lambda found: _rounded(float(found[0])), text)
    if isinstance(content, dict):
        return {str(key): steady(value) for key, value in content.items() if key not in LEFT_OUT}
    if isinstance(content, list | tuple):
        return [steady(value) for value in content]
    return content if content is None or isinstance(content, int) else str(content)


def _rounded(value: float) -> str:
    return f"{value:.9g}" if abs(value) > ZERO else "0"


def _pixels(found: re.Match[str]) -> str:
    """Return a digest of the pixels of a picture of `drawing.bars`: a header, one chunk of them, an end."""
    picture = base64.b64decode(found[0])
    size = int.from_bytes(picture[33:37], "big")
    return sha256(zlib.decompress(picture[41 : 41 + size])).hexdigest()


class Shown(NamedTuple):
    """A file of lines: how many there are of each kind, and what a line has digests of."""

    of: Callable[[Path], Iterator[tuple[str, Any]]]
    counts: Mapping[str, int]


FILES = {
    "tables": Shown(tables, dict.fromkeys(RANDOM, 24)),
    "keys": Shown(tables_with_metadata, dict.fromkeys(KEYED, 48)),
    "special": Shown(tables_with_metadata, dict.fromkeys(SPECIAL, 48)),
    "views": Shown(everything, dict.fromkeys(RANDOM, 4)),
    "texts": Shown(texts, dict.fromkeys(OF_TEXTS, 3)),
    "services": Shown(files_and_pages, dict.fromkeys(SERVICES, 48)),
    "commands": Shown(
        printed_and_written,
        {
            "steps": 400,
            "jobs": 300,
            "uses": 240,
            "sweeps": 90,
            "fits": 90,
            "checks": 100,
            "conversions": 160,
            "serves": 200,
            "spans": 71,
            "searches": 6,
            "looks": 30,
            "logs": 15,
            "configs": 400,
            "tools": 230,
            "topologies": 300,
            "mistakes": 400,
            "varied": 40,
        },
    ),
}


@cache
def kept(name: str) -> dict[tuple[str, int], str]:
    """Return the kept lines by kind and seed."""
    lines = (SHOWN / f"random-{name}.txt").read_text(encoding="utf-8").splitlines()
    return {(text.split()[0], int(text.split()[1])): text for text in lines}


def run_name(name: str, kind: str, seed: int) -> str:
    """Return the name of a run of a file; views and texts are of runs whose tables are in another one."""
    return f"{f'{name}/' if name in OF_OTHERS else ''}{kind}:{seed}"


def check(name: str, kind: str, count: int = sys.maxsize, *, day: int | None = None) -> None:
    """Check that the first lines of a kind are as kept; all or the chosen ones if rules are changed."""
    shown, chosen = FILES[name], os.environ.get(CHOSEN, "").split()
    for seed in range(shown.counts[kind] if IS_CHANGED else min(count, shown.counts[kind])):
        if day is not None and seed // 2 % DAYS != day:
            continue
        if chosen and run_name(name, kind, seed) not in chosen:
            continue
        found, known = line(kind, seed, shown.of).split(), kept(name)[kind, seed].split()
        changed = [each for each in found if each not in known]
        remedy = "if the change is meant, renew the files: python tests/views/random_shown.py"
        assert found == known, f"{kind} {seed}: {changed}; {remedy}"


def main() -> None:
    """Write the lines of the named files, or of all."""
    for name in sys.argv[1:] or FILES:
        shown = FILES[name]
        lines = [line(kind, seed, shown.of) for kind, count in shown.counts.items() for seed in range(count)]
        (SHOWN / f"random-{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
