"""Every rule has a test: small changes of core rules are noticed by the tests that are named for them.

Random changes are reported, not refused: the unnoticed ones show where a test is missing.
"""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import rooms
from choice import OF_CONVERTERS, RUNS_OF_KIND, RUNS_OF_ROW, Ran, Runs, chosen_files, chosen_runs, text_of
from mutants import FETCHES, REPOSITORY, Mutant, changes_of, mutants_of
from random_keys import KEYED
from random_lines import LINES
from random_runs import RANDOM
from random_services import SERVICES
from random_shown import FILES, OF_OTHERS, OF_TEXTS, kept, run_name
from random_special import SPECIAL
from rooms import (
    COMMANDS,
    FOLDER,
    MOST_FILES,
    OF_KINDS,
    REST,
    RUNS,
    changes_to_try,
    equivalents,
    files_by_function,
    files_by_name,
    files_for,
    files_of_module,
    functions_of,
    listed,
    modules,
    mutant_of,
    not_listed,
    runs_by_module,
    runs_for,
)
from trial import drawn

PER_TEST = 12
NOTICED = listed("noticed")
FIRSTS = range(0, len(NOTICED), PER_TEST)


def outcomes(pairs: list[tuple[Mutant | None, list[str]]]) -> list[tuple[str, str]]:
    """Return (outcome, the test that failed) for changes, each with its tests; None: without a change."""
    request = json.dumps([{"mutant": mutant and asdict(mutant), "tests": tests} for mutant, tests in pairs])
    command = [sys.executable, str(FOLDER / "trial.py"), "--given"]
    done = subprocess.run(command, input=request, capture_output=True, text=True, check=True)
    return [(line["outcome"], line["test"]) for line in map(json.loads, done.stdout.splitlines())]


@pytest.mark.deep
@pytest.mark.parametrize("first", FIRSTS, ids=lambda first: f"from-{first}")
def test_changes_of_core_rules_are_noticed(first: int) -> None:
    entries = NOTICED[first : first + PER_TEST]
    pairs: list[tuple[Mutant | None, list[str]]] = [(None, sorted({entry["test"] for entry in entries}))]
    pairs += [(mutant_of(entry), [entry["test"]]) for entry in entries]
    [unchanged, *changed] = outcomes(pairs)
    assert unchanged == ("survived", "")
    missed = [entry for entry, (outcome, _) in zip(entries, changed, strict=True) if outcome == "survived"]
    assert missed == []


@pytest.mark.seeds(deep=30, exhaustive=600, at_a_time=5)
def test_random_changes_are_tried(seeds: range) -> None:
    mutants = [drawn(seed) for seed in seeds]
    found = outcomes([(mutant, files_for(mutant)) for mutant in mutants])
    assert len(found) == len(seeds)
    for seed, mutant, (outcome, _) in zip(seeds, mutants, found, strict=True):
        if outcome == "survived":
            warnings.warn(f"seed {seed}: no test notices {mutant}", stacklevel=1)


@pytest.mark.deep
def test_a_changed_package_is_the_one_that_tests_import() -> None:
    entry = NOTICED[0]
    [unchanged, (outcome, test)] = outcomes([(None, [entry["test"]]), (mutant_of(entry), [entry["test"]])])
    assert (unchanged, outcome) == (("survived", ""), "noticed")
    assert test.startswith(entry["test"])


@pytest.mark.parametrize("name", ["noticed", "equivalent"])
def test_every_listed_change_is_one_of_the_source(name: str) -> None:
    entries = listed(name)
    keys = [mutant_of(entry).key for entry in entries]
    assert len(set(keys)) == len(keys)
    assert all(entry["reason"] for entry in entries)


def test_every_listed_test_is_one_of_its_file() -> None:
    named = {tuple(entry["test"].partition("[")[0].split("::")) for entry in NOTICED}
    missing = [(file, test) for file, test in named if f"def {test}(" not in (REPOSITORY / file).read_text()]
    assert missing == []


def test_no_equivalent_change_is_drawn() -> None:
    for module in {entry["module"] for entry in listed("equivalent")}:
        left_out = set(mutants_of(module)) - set(changes_to_try(module))
        assert {mutant.key for mutant in left_out} == {key for key in equivalents() if key[0] == module}


def test_a_seed_draws_the_same_change_again() -> None:
    below = ["et_sim/engine/nodes"]
    found = [drawn(seed, below) for seed in range(20)]
    assert found == [drawn(seed, below) for seed in range(20)]
    assert len(set(found)) > 15
    assert all(mutant.module.startswith(below[0]) for mutant in found)


def test_every_module_has_test_files_and_all_of_them_exist() -> None:
    assert all(files_of_module(module) for module in modules())
    files = {file for found in files_by_function().values() for of in found.values() for file in of}
    assert [file for file in files if not (REPOSITORY / file).is_file()] == []
    assert [module for module in files_by_function() if not (REPOSITORY / module).is_file()] == []


def test_a_change_has_the_tests_that_run_its_function() -> None:
    module = "et_sim/network/analytical.py"
    found = files_by_function()[module]
    for mutant in mutants_of(module):
        names = [name for name, first, last in functions_of(module) if first <= mutant.row <= last]
        assert set(files_for(mutant)) >= {*found[names[0] if names and names[0] in found else "*"]}
    new = replace(mutants_of(module)[0], module="et_sim/network/new.py")
    beside = {file for other, of in files_by_function().items() if "/network/" in other for file in of["*"]}
    assert len(set(files_for(new)) & beside) >= MOST_FILES


def test_a_line_has_the_files_whose_names_share_its_words() -> None:
    assert files_by_name('"bus_queues": buses * BUS_SIDES')[0] == "tests/engine/test_bus.py"
    assert files_by_name("return 1") == []


def test_a_test_file_that_is_not_listed_is_tried_for_the_modules_that_it_imports() -> None:
    file = "tests/engine/test_kept_starts.py"
    assert file in not_listed()
    assert file in files_for(mutants_of("et_sim/engine/start.py")[0])
    assert file not in files_for(mutants_of("et_sim/engine/nodes/issue.py")[0])


def test_the_room_that_compiles_is_tried_by_its_own_tests() -> None:
    found = files_for(mutants_of("et_sim/compiled/store.py")[0])
    assert "tests/compiled/test_store.py" in found
    assert {file.rpartition("/")[0] for file in found} == {"tests/compiled"}


def test_few_files_that_run_all_lines_are_chosen_and_near_ones_come_first() -> None:
    runs = [Runs("near", 1 / 60, 0b1110), Runs("far", 1 / 5000, 0b1110), Runs("other", 1 / 60, 0b10000)]
    assert chosen_files(runs, 0b1110, {"near": 1, "far": 1, "other": 1}) == ["near", "far"]
    assert chosen_files(runs, 0b11110, {"near": 1, "far": 1, "other": 1})[:2] == ["near", "other"]
    assert chosen_files(runs, 0b1110, {"near": 9, "far": 9, "other": 1}) == ["near"]
    many = [Runs(f"{number}", 1 / 60, 0b1) for number in range(20)]
    assert len(chosen_files(many, 0b1, {run.file: 0.1 for run in many})) == MOST_FILES


def test_the_choice_is_written_and_read_by_function(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    chosen = {"et_sim/a.py": {"f": ["x.py", "y.py"], "A.g": ["x.py", "y.py"], "*": ["y.py"]}}
    (tmp_path / "rooms.json").write_text(text_of(chosen))
    monkeypatch.setattr(rooms, "CHOICE", tmp_path / "rooms.json")
    files_by_function.cache_clear()
    found = files_by_function()
    files_by_function.cache_clear()
    assert found == {
        module: {name: [f"tests/{file}" for file in files] for name, files in of.items()}
        for module, of in chosen.items()
    }


SOURCE = '''
def rule(a: int = 3) -> bool:
    """Not 1 < 2."""
    total = a + 1
    if a < 2 and total:
        total += 1
        note(total)
    elif not a:
        raise ValueError(f"{a + 1}")
    return min(total, a) in (a,)
'''
CHANGES = [
    ("def rule(a: int = 3) -> bool:", "3 -> (4)"),
    ("def rule(a: int = 3) -> bool:", "3 -> (2)"),
    ("total = a + 1", "a + 1 -> (a - 1)"),
    ("total = a + 1", "1 -> (2)"),
    ("total = a + 1", "1 -> (0)"),
    ("total += 1", "total += 1 note(total) -> pass"),
    ("if a < 2 and total:", "a < 2 and total -> (not (a < 2 and total))"),
    ("if a < 2 and total:", "a < 2 and total -> (a < 2 or total)"),
    ("if a < 2 and total:", "a < 2 -> (a <= 2)"),
    ("if a < 2 and total:", "2 -> (3)"),
    ("if a < 2 and total:", "2 -> (1)"),
    ("total += 1", "total += 1 -> pass"),
    ("total += 1", "1 -> (2)"),
    ("total += 1", "1 -> (0)"),
    ("note(total)", "note(total) -> pass"),
    ('raise ValueError(f"{a + 1}")', 'raise ValueError(f"{a + 1}") -> pass'),
    ("elif not a:", "not a -> (not (not a))"),
    ("return min(total, a) in (a,)", "min(total, a) in (a,) -> (min(total, a) not in (a,))"),
    ("return min(total, a) in (a,)", "min(total, a) -> max(total, a)"),
]


def test_changes_are_of_operators_numbers_conditions_branches_and_statements() -> None:
    found = changes_of("rule.py", SOURCE)
    assert [(mutant.line, mutant.change) for mutant in found] == CHANGES
    assert len({mutant.applied(SOURCE) for mutant in found}) == len(found)
    for mutant in found:
        compile(mutant.applied(SOURCE), "rule.py", "exec")


def test_a_comment_is_no_part_of_a_change() -> None:
    [bare, commented] = "a = (\n    b + c\n)\n", 'a = (  # "x" + y\n    b + c  # of b\n)\n'
    [there, here] = (changes_of("rule.py", source) for source in (bare, commented))
    assert [mutant.key for mutant in here] == [mutant.key for mutant in there]
    assert here[0].applied(commented) == 'a = (  # "x" + y\n    (b - c)  # of b\n)\n'


def test_the_row_of_a_table_with_one_row_is_not_changed_to_the_last() -> None:
    found = changes_of("rule.py", "a = run.clock[0].now + rows[0]\n")
    assert [mutant.change for mutant in found if mutant.text == "(-1)"] == ["0 -> (-1)"]
    assert found[-1].start == len("a = run.clock[0].now + rows[")


def test_sizes_of_blocks_and_of_all_that_is_kept_and_fetches_into_caches_are_not_changed() -> None:
    sources = {
        "MOST_KEPT = 4\n": 0,
        "LARGEST_KEPT = 64 << 20\n": 0,
        "MOST_LINKS_KEPT = 1 << 14\n": 0,
        "MOST_LINKS = 1 << 14\n": 5,
        "is_large = links > MOST_KEPT\n": 1,
        "ROWS_AT_ONCE = 1 << 16\n": 0,
        "AT_A_TIME = 3\n": 0,
        "MANY_ROWS = 9\n": 0,
        "MOST_KEPT = 64 << 20\n": 0,
        "ISSUE_AT_ONCE = 3\n": 2,
    }
    assert {source: len(changes_of("rule.py", source)) for source in sources} == sources
    assert mutants_of(FETCHES) == []


def test_runs_of_a_module_run_it_and_are_kept() -> None:
    kept_runs = {run_name(name, *run) for name in FILES for run in kept(name)}
    of_tables = [*RANDOM, *KEYED, *SPECIAL]
    for path, counts in ((RUNS, of_tables), (COMMANDS, [*SERVICES, *LINES, *RANDOM, *OF_TEXTS])):
        chosen = {
            module: [f"{kind}:{seed}" for kind, seeds in found.items() for seed in seeds.split()]
            for module, found in runs_by_module(path).items()
        }
        assert {run for runs in chosen.values() for run in runs} <= kept_runs
        assert {*chosen} - {REST} <= {*modules()}
        assert len(chosen[REST]) == RUNS_OF_KIND * len({*counts} - {OF_CONVERTERS})
    module = "et_sim/network/loggops/model.py"
    assert {run.partition(":")[0] for run in runs_for(mutants_of(module)[0]).split()} == {"uneven", "goals"}


def test_a_change_has_the_files_of_the_runs_that_are_chosen_for_it() -> None:
    assert {*OF_KINDS} == {*OF_OTHERS, *SERVICES, *LINES} - {OF_CONVERTERS}
    for module, file in (("serving/cluster.py", "servings"), ("sweeps/search.py", "sweeps")):
        mutant = mutants_of(f"et_sim/{module}")[0]
        runs = runs_for(mutant).split()
        assert len([run for run in runs if run.startswith(f"{file}:")]) > 8
        assert OF_KINDS[file] in files_for(mutant)
    of_engine = mutants_of("et_sim/engine/loop.py")[0]
    assert not {*files_for(of_engine)} & {OF_KINDS["servings"], OF_KINDS["uses"]}


def test_random_runs_are_chosen_until_enough_run_each_row() -> None:
    runs = {f"slow:{seed}": Ran(9.0, {"a.py": 0b110}, 0) for seed in range(3)}
    runs |= {f"quick:{seed}": Ran(0.05, {"a.py": 0b010}, 0) for seed in range(30)}
    chosen = chosen_runs(runs, "a.py", 0b110)
    assert sorted(chosen) == sorted([*sorted(runs)[:RUNS_OF_ROW], "slow:0", "slow:1"])
    assert chosen_runs(runs, "a.py", 0b010)[0].startswith("quick")
    assert chosen_runs(runs, "b.py", 0b110) == []


def test_a_field_that_no_event_of_the_kind_has_is_not_changed() -> None:
    lines = ("schedule(run, 1, NODE_DONE, a, b, 0)", "schedule(run, 1, SLOWED_DONE, a, b, 0)")
    lines += ("schedule_own(run, 1, NETWORK + END, 2, b, 0)", "schedule(run, 1, kind, a, b, 0)")
    changed = [[mutant.change for mutant in changes_of("rule.py", f"{line}\n")] for line in lines]
    assert ["0 -> (1)" in changes for changes in changed] == [False, True, False, True]


def test_equal_lines_are_distinguished_by_their_number() -> None:
    found = changes_of("rule.py", "a = b + c\na = b + c\n")
    assert [(mutant.number, mutant.row) for mutant in found] == [(0, 1), (1, 2)]
    assert [mutant.applied("a = b + c\na = b + c\n") for mutant in found] == [
        "a = (b - c)\na = b + c\n",
        "a = b + c\na = (b - c)\n",
    ]
