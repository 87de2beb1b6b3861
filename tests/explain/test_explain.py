"""`et-sim explain`: every word of input files, corrections, tables and commands has its meaning."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from et_sim import views
from et_sim.basics.errors import UsageError
from et_sim.basics.quantities import Quantity
from et_sim.cli import main
from et_sim.documents.keys_without_effect import UNUSED_KEYS
from et_sim.explain import Meaning, find
from et_sim.machine.corrections import Correction
from et_sim.memory.footprint import CLASSES
from et_sim.reference_page import TABLES
from et_sim.samples.blame import COMMUNICATION, NOT_VARIED, OTHER, WAY
from et_sim.tables.registry import all_tables
from et_sim.views.critical.path import CAUSES
from et_sim.views.summary.idle import MEANINGS as IDLE_CAUSES
from et_sim.views.summary.parts import PARTS
from et_sim.views.summary.path_in_short import WORDS

BLAMED = (COMMUNICATION, NOT_VARIED, OTHER, WAY)


@pytest.fixture
def explained(capsys: pytest.CaptureFixture[str]) -> Any:
    """Return a function that runs the command and returns its JSON."""

    def explain(*words: str) -> Any:
        assert main(["explain", *words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return explain


def test_every_declared_word_is_found(explained: Any) -> None:
    names = {meaning["name"] for meaning in explained()}
    assert {key.name for file in TABLES for key in file.keys} <= names
    assert set(UNUSED_KEYS) | {correction.value for correction in Correction} <= names
    assert {table.name for table in all_tables()} <= names
    assert {column.name for table in all_tables() for column in table.columns} <= names
    assert {part.text for part in PARTS} | {"--no-fold", "--perfetto", "--top"} <= names


def _printed() -> Iterator[str]:
    """Yield the headings of tables and the names of lines that views print."""
    for path in Path(views.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("SheetColumn", "fact"):
                first = node.args[0] if node.args else None
            elif (
                isinstance(node, ast.Tuple)
                and path.name in ("facts.py", "serving.py")
                and len(node.elts) == 2
            ):
                first = node.elts[0]
            else:
                continue
            if isinstance(first, ast.Constant) and isinstance(first.value, str) and "_" not in first.value:
                yield first.value


def test_every_word_that_views_print_is_found(explained: Any) -> None:
    meanings = [Meaning(**meaning) for meaning in explained()]
    words = {word for word in _printed() if re.search("[a-zA-Z]", word)}
    words |= {str(word) for word in (*Quantity, *CAUSES, *IDLE_CAUSES, *WORDS.values(), *CLASSES, *BLAMED)}
    assert len(words) > 100
    missing = []
    for word in sorted(words):
        try:
            find(word, meanings)
        except UsageError:
            missing.append(word)
    assert missing == []


def test_a_label_with_a_name_of_the_run_is_found_by_its_form(explained: Any) -> None:
    meanings = [Meaning(**meaning) for meaning in explained()]
    for label, name in (
        ("bandwidth of dimension 0", "bandwidth of …"),
        ("latency of leaf to spine", "latency of …"),
        ("time of layer 3 forward", "time of …"),
        ("dimension 1", "dimension …"),
        ("leaf to spine", "… to …"),
        ("time to first token", "time to first token"),
    ):
        assert find(label, meanings)[0].name == name


@pytest.mark.parametrize(
    ("word", "meant"),
    [("nothing more to doo", "nothing-more-to-do"), ("time to first tokn", "time-to-first-token")],
)
def test_a_mistyped_label_is_not_a_tier(explained: Any, word: str, meant: str) -> None:
    meanings = [Meaning(**meaning) for meaning in explained()]
    with pytest.raises(UsageError, match=meant):
        find(word, meanings)


def test_options_that_help_does_not_show_are_not_explained(explained: Any) -> None:
    assert not [meaning for meaning in explained() if "SUPPRESS" in str(meaning)]


def test_words_of_jobs_and_of_the_network_are_explained(explained: Any) -> None:
    assert {meaning["kind"] for meaning in explained("jobs")} == {"file", "table"}
    assert [meaning["kind"] for meaning in explained("slowdown")] == ["column"]
    assert "link that had the most to carry" in explained("bottleneck")[0]["text"]


def test_a_key_comes_with_its_place_default_range_and_example(explained: Any) -> None:
    [meaning] = explained("endpoint-delay")
    assert meaning["place"] == "system file, system file of ASTRA-sim 1.0"
    assert meaning["facts"]["default"] == "10"
    assert meaning["facts"]["unit"] == "ns"
    assert meaning["facts"]["example"] == '"endpoint-delay": 10'


def test_a_correction_and_a_key_state_their_effect_in_each_profile(explained: Any) -> None:
    assert explained("eager-sends")[0]["facts"]["profiles"] == "reference: off; corrected: on; astra-1.0: off"
    profiles = explained("intra-dimension-scheduling")[0]["facts"]["profiles"]
    assert profiles.startswith("reference: no effect; corrected: as described; astra-1.0: as described")


def test_all_meanings_of_a_word_are_printed(explained: Any) -> None:
    assert {meaning["kind"] for meaning in explained("groups")} == {"file", "key", "option", "table"}
    assert [meaning["place"] for meaning in explained("waiting_ns")] == [
        "summary",
        "timeline.arrow",
        "actors.arrow",
    ]


@pytest.mark.parametrize("words", [["exposed", "communication"], ["exposed"], ["Exposed_Comm_ns"]])
def test_a_part_of_a_ranks_time_is_found_by_each_of_its_names(explained: Any, words: list[str]) -> None:
    assert explained(*words)[0]["name"] == "exposed communication"


def test_case_separates_names_that_differ_in_nothing_else(explained: Any) -> None:
    assert [explained(word)[0]["name"] for word in ("g", "G", "l")] == ["g", "G", "L"]


@pytest.mark.parametrize("word", ["--no-fold", "no-fold", "fold"])
def test_an_option_is_found_with_and_without_its_dashes(explained: Any, word: str) -> None:
    assert explained(word)[0]["name"] == "--no-fold"


def test_a_column_can_be_found_by_its_table(explained: Any) -> None:
    assert [meaning["place"] for meaning in explained("timeline.end_ns")] == ["timeline.arrow"]


@pytest.mark.parametrize(
    ("word", "key"),
    [("dragonfly", "routers-per-group"), ("fat-tree", "oversubscription"), ("torus", "sizes")],
)
def test_a_generator_of_graphs_is_explained_with_its_keys(explained: Any, word: str, key: str) -> None:
    [meaning] = [meaning for meaning in explained(word) if meaning["kind"] == "generator of graphs"]
    assert meaning["text"]
    assert key in meaning["facts"]["keys"]


def test_a_value_leads_to_its_key(explained: Any) -> None:
    assert explained("roundRobin")[0]["kind"] == "value of inter-dimension-scheduling"


def test_an_unknown_word_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "endpont-delay"]) == 2
    assert "there is no entry 'endpont-delay' (did you mean 'endpoint-delay'?)" in capsys.readouterr().err


def test_text_fits_the_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    for words in ([], ["intra-dimension-scheduling"], ["exposed"]):
        assert main(["explain", *words]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert max(len(line) for line in lines if not line.startswith(("value", "key"))) <= 62
