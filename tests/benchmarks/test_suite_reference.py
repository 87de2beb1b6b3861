"""`benchmarks/suite.py --reference`, with a program that replaces the reference."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

STAND_IN = f"""#!{sys.executable}
import json, resource, sys
from pathlib import Path

given = dict(argument.removeprefix("--").split("=", 1) for argument in sys.argv[1:])
prefix = given.pop("workload-configuration")
files = {{key: json.loads(Path(path).read_text()) for key, path in given.items()}}
assert files["remote-memory-configuration"] == {{"memory-type": "NO_MEMORY_EXPANSION"}}
assert "all-reduce-implementation" in files["system-configuration"]
(ranks,) = files["network-configuration"]["npus_count"]
assert all(Path(f"{{prefix}}.{{rank}}.et").stat().st_size for rank in range(ranks))
while resource.getrusage(resource.RUSAGE_SELF).ru_utime < 0.05:
    pass
with open("runs.txt", "a") as runs:
    runs.write(" ".join(sorted(given)) + "\\n")
"""


@pytest.fixture
def growth(suite: ModuleType) -> ModuleType:
    """Return the program, beside the suite."""
    assert suite.ROWS
    return importlib.import_module("growth")


@pytest.fixture
def suite(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Yield the program; modules beside it share names with helpers of other tests."""
    names = [path.stem for path in BENCHMARKS.glob("*.py")]
    others = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("suite")
    for name in names:
        sys.modules.pop(name, None)
    sys.modules.update(others)


def program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def measured(suite: ModuleType, folder: Path, row: Any, **binaries: Path | None) -> Any:
    paths = {"unaware": None, "aware": None, **binaries}
    suite.measure(row, folder, 2, suite.Reference.of(**paths))
    return row


def test_every_turn_runs_the_reference_on_the_files_of_all_ranks(suite: ModuleType, tmp_path: Path) -> None:
    binary = program(tmp_path / "reference", STAND_IN)
    row = measured(suite, tmp_path, suite.Row("small", (4,), "all_reduce", reference_s=99), unaware=binary)
    assert (tmp_path / "runs.txt").read_text().splitlines() == [
        "network-configuration remote-memory-configuration system-configuration"
    ] * 2
    assert row.is_beside
    assert row.reference_s >= 0.05
    assert row.reference_s != 99
    assert row.result["makespan_ns"] > 0


def test_groups_are_given_to_the_reference(suite: ModuleType, tmp_path: Path) -> None:
    binary = program(tmp_path / "reference", STAND_IN)
    measured(suite, tmp_path, suite.Row("small", (8,), "unlike", chunks=1), unaware=binary)
    assert "comm-group-configuration" in (tmp_path / "runs.txt").read_text()


@pytest.mark.deep
def test_the_link_model_is_measured_beside_the_binary_with_congestion(
    suite: ModuleType, tmp_path: Path
) -> None:
    binary = program(tmp_path / "reference", STAND_IN)
    row = suite.Row("small", (4,), "all_reduce", model="link", reference_s=99)
    assert measured(suite, tmp_path, replace(row), unaware=binary).reference_s == 99
    assert measured(suite, tmp_path, replace(row), aware=binary).reference_s != 99


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "is no program that can be run"),
        ("#!/nowhere/at/all\n", "cannot be run: No such file or directory"),
        ("#!/bin/sh\necho no such topology >&2\nexit 3\n", "ended with status 3: no such topology"),
    ],
)
def test_a_reference_that_is_absent_or_fails_is_refused_in_one_sentence(
    text: str | None, sentence: str, tmp_path: Path
) -> None:
    binary = tmp_path / "reference"
    if text is not None:
        program(binary, text)
    command = [sys.executable, str(BENCHMARKS / "suite.py"), "--only", "nothing", "--reference", str(binary)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert run.stderr.startswith("suite.py: error: the reference ")
    assert sentence in run.stderr
    assert run.stderr.count("\n") == 1


def test_measured_times_stand_in_the_table_and_in_the_picture(suite: ModuleType, tmp_path: Path) -> None:
    result = {"wall_s": 0.5, "processor_s": 0.4, "peak_mib": 90, "messages": 48, "actors": 1, "ranks": 4}
    row = suite.Row("small", (4,), "all_reduce", target_s=1, result=result)
    row.reference_s, row.is_beside = 2.0, True
    larger = replace(row, result={**result, "ranks": 40}, fold=False, reference_s=21.0)
    (tmp_path / "docs").mkdir()
    (tmp_path / "benchmarks").mkdir()
    page = tmp_path / "benchmarks" / "README.md"
    page.write_text(f"before\n{suite.BEGIN}\nstale\n{suite.END}\nbehind\n")
    growth = suite.Growth("NPUs", "Some", [row, larger], lambda row: row.result["ranks"])
    suite.write([row], [growth], {"cpu": "a", "load": 0.5}, tmp_path)
    text = page.read_text()
    assert "Machine: cpu a, load 0.5." in text
    assert "stale" not in text
    line = next(line for line in text.splitlines() if line.startswith("| small"))
    assert line.split(" | ")[2:4] == ["0.40 s", "0.50 s"]
    assert line.endswith("| 2 s | 5.0x |")
    stored = json.loads((tmp_path / "benchmarks" / "results.json").read_text())
    assert stored["machine"] == {"cpu": "a", "load": 0.5}
    assert [row["reference_s"] for row in stored["rows"]] == [2.0, 2.0, 21.0]
    picture = ElementTree.parse(tmp_path / "docs" / "scaling.svg")
    texts = [element.text for element in picture.iter() if element.tag.endswith("text")]
    assert {"Some", "NPUs", "et-sim", "et-sim --no-fold", "reference"} <= set(texts)


def test_times_of_the_reference_from_another_machine_are_marked(suite: ModuleType) -> None:
    result = {"wall_s": 0.5, "processor_s": 0.4, "peak_mib": 90, "messages": 48, "actors": 1, "ranks": 4}
    row = suite.Row("small", (4,), "all_reduce", reference_s=2.0, result=result)
    beside = replace(row, is_beside=True)
    assert suite.table([beside]).splitlines()[-1].endswith("| 2 s | 5.0x |")
    lines = suite.table([beside, row]).splitlines()
    assert lines[-3].endswith("| 2 s \\* | 5.0x \\* |")
    assert lines[-1].startswith("\\* Of another machine")
    assert f"factor of {suite.DOUBT}" in lines[-1]


def test_a_slope_is_the_exponent_between_the_last_two_sizes(growth: ModuleType) -> None:
    points = [(64.0, 0.2), (1024.0, 0.2), (4096.0, 0.4), (16_384.0, 1.6)]
    assert growth.slope(points) == pytest.approx(1.0)
    assert growth.slope(points[:3]) == pytest.approx(0.5)
    found = {"one": points, "two": points[:3]}
    header, _, one, two = growth.table(found).splitlines()
    assert header == "| input | ranks: processor time | slope |"
    assert one == "| one | 64: 0.20 s, 1,024: 0.20 s, 4,096: 0.40 s, 16,384: 1.60 s | 1.00 |"
    assert two == "| two | 64: 0.20 s, 1,024: 0.20 s, 4,096: 0.40 s | 0.50 |"
    drawn = ElementTree.fromstring(growth.picture(found))
    texts = {element.text for element in drawn.iter() if element.tag.endswith("text")}
    assert {"one: 1.00", "two: 0.50", "ranks"} <= texts


def test_rows_that_are_not_measured_stay_in_table_and_picture(growth: ModuleType, tmp_path: Path) -> None:
    names = [kind.name for kind in growth.KINDS[:3]]
    old = {name: [(64.0, 0.2), (1024.0, 0.8)] for name in [*names[:2], "no longer a kind"]}
    for folder in ("benchmarks", "docs"):
        (tmp_path / folder).mkdir()
    page = tmp_path / "benchmarks" / "README.md"
    page.write_text(f"before\n{growth.BEGIN}\n{growth.table(old)}\n{growth.END}\nbehind\n")
    new = {names[2]: [(64.0, 0.1), (1024.0, 0.2)], names[0]: [(64.0, 0.3), (1024.0, 0.3)]}
    growth.write(new, tmp_path)
    expected = {names[0]: new[names[0]], names[1]: old[names[1]], names[2]: new[names[2]]}
    assert page.read_text() == f"before\n{growth.BEGIN}\n{growth.table(expected)}\n{growth.END}\nbehind\n"
    drawn = ElementTree.parse(tmp_path / "docs" / "growth.svg")
    texts = {element.text for element in drawn.iter() if element.tag.endswith("text")}
    assert {f"{names[0]}: 0.00", f"{names[1]}: 0.50", f"{names[2]}: 0.25"} <= texts


def test_all_workloads_of_the_suite_grow(suite: ModuleType, growth: ModuleType) -> None:
    grown = {kind.workload for kind in growth.KINDS}
    assert grown >= {row.workload for row in suite.ROWS} - {"distinct"}  # its traces have 5,000 nodes each
    sizes = {ranks for kind in growth.KINDS for shape in kind.shapes for ranks in [suite.prod(shape)]}
    assert {64, 65_536} <= sizes
    assert all(len(kind.rows()) >= 3 for kind in growth.KINDS)


@pytest.mark.deep
@pytest.mark.in_turn(days=2)
@pytest.mark.parametrize(
    "name",
    [
        "leaves, analytical",
        "paths, flow",
        "torus as a graph",
        "straddling",
        "slow rank",
        "packets",
        "GOAL",
    ],
)
def test_other_ways_to_grow_run_on_their_machines(
    growth: ModuleType, suite: ModuleType, tmp_path: Path, name: str
) -> None:
    [kind] = [kind for kind in growth.KINDS if kind.name == name]
    row = kind.rows()[0]
    result = suite.run_once(row, tmp_path)
    assert result["ranks"] == suite.prod(row.shape)
    assert result["messages"] > 0
    assert "reference" not in result


def test_growth_is_drawn_for_ranks_messages_nodes_and_packets(suite: ModuleType) -> None:
    result = {"processor_s": 0.5, "messages": 48, "ranks": 4, "packets": 7}
    growths = [
        replace(
            growth,
            rows=[
                replace(row, result={**result, "ranks": number + 1}) for number, row in enumerate(growth.rows)
            ],
        )
        for growth in suite.GROWTHS
    ]
    nouns = [growth.noun for growth in growths]
    assert nouns == ["NPUs", "messages", "nodes", "packets"]
    assert all(f">{noun}</text>" in suite.picture(growths) for noun in nouns)
