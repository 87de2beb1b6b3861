"""Damaged input is refused in a sentence, or read: no other exception escapes, and it takes little time.

Some seeds of each kind in every run of the tests, more in the longer suites. A finding names its seed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from inputs import CASES, RUN_COMMANDS, Case, write_run
from mutations import damage_json
from reading import trouble_of, troubles
from tables import damage_table

SEEDS = 2
TABLES = ("actors", "groups", "links", "memory", "messages", "path", "phases", "resources", "timeline")
PARTS = {
    **{f"run/{name}.arrow": damage_table for name in TABLES},
    **dict.fromkeys(("run/summary.json", "run/run.json"), damage_json),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield sound input in the working folder."""
    chosen, before = tmp_path_factory.mktemp("inputs"), Path.cwd()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ET_SIM_COMPILE", "never")
        os.chdir(chosen)
        write_run(chosen)
        yield chosen
        os.chdir(before)


@pytest.mark.usefixtures("folder")
def test_the_input_is_sound_before_it_is_damaged() -> None:
    lines = [line for case in CASES.values() for line in case.commands]
    assert [line for line in (*lines, *RUN_COMMANDS[:2]) if trouble_of(line)] == []


@pytest.mark.deep
@pytest.mark.usefixtures("folder")
def test_all_that_reads_a_run_reads_the_sound_one() -> None:
    assert [line for line in RUN_COMMANDS if trouble_of(line)] == []


@pytest.mark.parametrize("name", CASES)
def test_damaged_input_is_refused_or_read(name: str, folder: Path) -> None:
    assert [text for seed in range(SEEDS) for text in troubles(CASES[name], seed, folder)] == []


@pytest.mark.parametrize("file", PARTS)
def test_a_damaged_run_is_refused_or_shown(file: str, folder: Path) -> None:
    commands = RUN_COMMANDS[:2] if file.endswith("arrow") else RUN_COMMANDS[:1]
    assert troubles(Case(file, PARTS[file], commands), 0, folder) == []


@pytest.mark.seeds(deep=10, exhaustive=1000, at_a_time=10)
@pytest.mark.parametrize("name", CASES)
def test_much_damaged_input_is_refused_or_read(name: str, seeds: range, folder: Path) -> None:
    assert [text for seed in seeds for text in troubles(CASES[name], seed, folder)] == []


@pytest.mark.seeds(deep=5, exhaustive=150, at_a_time=5)
@pytest.mark.parametrize("file", PARTS)
def test_runs_damaged_in_many_ways_are_refused_or_shown(file: str, seeds: range, folder: Path) -> None:
    case = Case(file, PARTS[file], RUN_COMMANDS)
    assert [text for seed in seeds for text in troubles(case, seed, folder)] == []
