"""Every key of every declared document refuses values of another kind, with the allowed ones."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from et_sim import reference_page
from et_sim.basics.errors import InputError, MachineError, TraceError, UsageError
from et_sim.documents import keys
from et_sim.documents.descriptions import TEXTS as TEXTS_BY_NAME
from et_sim.documents.keys import (
    Key,
    Remarks,
    Section,
    Slot,
    check_fields,
    inline,
    keys_of,
    line_of,
    made,
    read,
    read_keys,
)
from et_sim.documents.kinds import (
    BANDWIDTH,
    BANDWIDTH_WITH_UNIT,
    CHOICE,
    COUNT,
    COUNT_OR_COUNTS,
    COUNTS,
    FLAG,
    INTEGER,
    NAMED,
    NUMBER,
    OBJECT,
    OBJECTS,
    PICOSECONDS,
    RANKS,
    RATE,
    SIZE,
    SOME_RANKS,
    SWITCH,
    TEXT,
    TIME,
    count,
    flag,
    sections,
    text,
    time,
)
from et_sim.jobs.job_file import GROUPS, NAME, NPUS, SEED, START, WORKLOAD, Jobs
from et_sim.machine.system import PREFIX
from et_sim.machine.topology.generators import GENERATORS
from et_sim.machine.topology.graph_file import GraphFile, Import
from et_sim.machine.topology.keys import NAME_OR_NAMES, NAMES, NUMBER_OR_NAMES, RATIO
from et_sim.recipes.recipe import BYTES, recipe_keys
from et_sim.sweeps.spec import AxisSpec, SweepSpec
from et_sim.trace.manifest import Manifest
from et_sim.workloads.software.description import WORDS, Software
from et_sim.workloads.training.plan import Plan


def nested(of: Any) -> Iterator[tuple[str, tuple[Key, ...]]]:
    """Yield a class with its keys, and every class that its keys hold."""
    yield of.__name__, keys_of(of)
    for key in keys_of(of):
        if key.of is not None:
            yield from nested(key.of)


DOCUMENTS = {f"{at} {table.name}": table.keys for at, table in enumerate(reference_page.TABLES)}
for whole_document in (
    Manifest,
    Jobs,
    Software,
    GraphFile,
    Import,
    SweepSpec,
    AxisSpec,
    *GENERATORS.values(),
):
    DOCUMENTS |= dict(nested(whole_document))
DOCUMENTS |= {kind: recipe_keys({"make": kind}) for kind in ("llm", "cnn", "all_reduce")}
DOCUMENTS["plan"] = keys_of(Plan)
HUGE = 10**400
NUMBERS: list[Any] = [True, None, [1], -4, float("inf"), float("nan"), HUGE, "ten", {}]
TEXTS: list[Any] = [1, True, None, [], "", ["a", "b"], {}]
WRONG = {
    **{kind.name: [*NUMBERS, "10", -0.5] for kind in (INTEGER, COUNT)},
    NUMBER.name: [*NUMBERS, "10"],
    **{kind.name: NUMBERS for kind in (TIME, PICOSECONDS, RATE, BANDWIDTH)},
    SIZE.name: NUMBERS,
    SWITCH.name: ["1", "false", None, [1], float("nan")],
    FLAG.name: ["true", 2, None, []],
    NPUS.name: [True, None, 1.5, {}, {0}, [], "", "sprad", "0-999999999", [1.5], [-1], [True], ["x"]],
    START.name: [*NUMBERS, 0.5, "-5us", 2**60],
    SEED.name: [True, "x", -1, 1.5, 2**64],
    **{kind.name: [4, [], "", True] for kind in (WORKLOAD, GROUPS)},
    **{kind.name: TEXTS for kind in (CHOICE, TEXT, RANKS, SOME_RANKS, NAME)},
    COUNTS.name: [*NUMBERS[:2], *NUMBERS[3:], [], ["1"], [1.5], [True], [-4], [2**60]],
    COUNT_OR_COUNTS.name: [True, None, -4, "1", [], ["1"], [1.5], [True], [-4], [2**60]],
    PREFIX.name: [*TEXTS, "a"],
    OBJECT.name: [1, "a", None, [{}]],
    NAMED.name: [1, "a", None, [{}]],
    OBJECTS.name: [{}, "3", [3], None, []],
    BYTES.name: [*NUMBERS, "x"],
    BANDWIDTH_WITH_UNIT.name: [*TEXTS, 5, 1.5, "10", "fast", "0GB/s", "-1GB/s"],
    RATIO.name: [True, None, "x", "1:0", 0, -1, []],
    **{
        kind.name: [None, True, 1.5, "", {}, [None], [True], [""]]
        for kind in (NAME_OR_NAMES, NUMBER_OR_NAMES)
    },
    WORDS.name: [None, "a", 3, {}, [None], [True], [""]],
    TEXTS_BY_NAME.name: [None, "a", 3, [], {"a": 1}, {"a": ""}],
    NAMES.name: [None, "a", 3, {}, [None], [True], [""]],
}


WHOLE_NUMBERS = (INTEGER, COUNT, SIZE)
NUMERIC = (*WHOLE_NUMBERS, NUMBER, TIME, PICOSECONDS, RATE, BANDWIDTH)


def next_number(key: Key, number: float, towards: float) -> float:
    """Return the next number of the key's kind in a direction."""
    step = 1 if towards > number else -1
    return int(number) + step if key.kind in WHOLE_NUMBERS else math.nextafter(number, towards)


def out_of_range(key: Key) -> list[Any]:
    """Return numbers just beyond the limits."""
    if key.kind not in NUMERIC:
        return []
    least = key.minimum if key.above_minimum else next_number(key, key.minimum, -math.inf)
    return [least, next_number(key, key.maximum, math.inf), *([] if key.below is None else [key.below])]


def at_limits(key: Key) -> list[Any]:
    """Return the least and the greatest number that are allowed."""
    least = next_number(key, key.minimum, math.inf) if key.above_minimum else key.minimum
    if key.kind is PICOSECONDS and key.above_minimum:
        least = 0.001
    most = key.maximum if key.below is None else min(key.maximum, next_number(key, key.below, -math.inf))
    return [least, most]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_key_that_no_document_has_and_one_that_is_missing_are_refused(name: str) -> None:
    required = [key for key in DOCUMENTS[name] if key.required]
    sentences = ['key "such-a-key" is not known']
    sentences += [f'key "{key.name}" is missing (allowed: {key.allowed})' for key in required[:1]]
    for content, sentence in zip(({"such-a-key": 1}, {}), sentences, strict=False):
        with pytest.raises(TraceError) as caught:
            read_keys(Section("<file>", content, error_type=TraceError), DOCUMENTS[name], Remarks())
        assert str(caught.value).startswith(f"<file>: {sentence}")
        assert caught.value.remedy


@pytest.mark.parametrize("name", DOCUMENTS)
def test_invalid_values_are_refused_with_the_allowed_ones(name: str) -> None:
    for key in DOCUMENTS[name]:
        for value in (*WRONG.get(key.kind.name, ()), *out_of_range(key)):
            if value in ("", []) and key.may_be_empty:
                continue
            try:
                Slot(key, Section("<file>", {}), Remarks()).value(value)
                refusal = ""
            except MachineError as error:
                refusal = str(error)
            assert re.match(f'<file>: key "{key.name}"(: .| (index . )?is )', refusal), (key.name, value)
            assert f"(allowed: {key.allowed}" in refusal or "did you mean" in refusal, (key.name, value)


def test_every_default_is_an_allowed_value() -> None:
    for declared in DOCUMENTS.values():
        for key in declared:
            if key.default is not None:
                Slot(key, Section("<file>", {}), Remarks()).value(key.default)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_numbers_at_the_limits_are_allowed(name: str) -> None:
    for key in DOCUMENTS[name]:
        for value in at_limits(key) if key.kind in NUMERIC else ():
            assert Slot(key, Section("<file>", {}), Remarks()).kind_value(value) == value, key.name


class Inner(Struct, frozen=True):
    """Keys that another document includes."""

    is_fast: bool = flag("Fast.", False, name="fast")


class Entry(Struct, frozen=True):
    """An entry of a list."""

    name: str = text("A name.", required=True)
    delay_ns: float = time("A delay.", 2.0, stated=True)


class Whole(Struct, frozen=True):
    """A document."""

    size: int = count("A size.", 1, minimum=1)
    more: int = count("More.", 0, needs="size")
    inner: Inner = inline(Inner)
    entries: tuple[Entry, ...] = sections("Entries.", (), of=Entry, most=2)


def whole(content: dict[str, Any]) -> tuple[Whole, Remarks]:
    remarks = Remarks()
    return read(Whole, Section("<file>", content), remarks), remarks


def test_a_class_is_made_of_its_keys_and_stated_defaults_are_recorded() -> None:
    result, remarks = whole({"size": 3, "fast": True, "entries": [{"name": "a"}]})
    assert result == Whole(3, 0, Inner(True), (Entry("a", 2.0),))
    (notice,) = remarks.defaults
    assert (notice.place, notice.key) == ('<file>: "entries" index 0', "delay")
    assert notice.text == "not given; 2.0 is taken"
    assert made(Whole, {"fast": False}, result) == Whole(3, 0, Inner(False), (Entry("a", 2.0),))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"sise": 3}, "<file>: key \"sise\" is not known (did you mean 'size'?)"),
        ({"x": 3}, '<file>: key "x" is not known (known keys: size, more, fast, entries)'),
        ({"more": 1}, '<file>: key "more" has no effect without "size" (give both, or neither)'),
        ({"entries": [{}]}, '<file>: "entries" index 0: key "name" is missing (allowed: a text in quotes)'),
        ({"entries": [{"name": "a"}] * 3}, '<file>: key "entries" has 3 entries (allowed: at most 2)'),
        (
            {"entries": [{"name": "a"}] * 2},
            '<file>: "entries" index 1: is called "a", as is index 0 of "entries" (give each its own name)',
        ),
    ],
)
def test_faults_of_an_object_are_one_sentence(content: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        whole(content)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("made_in_python", "sentence"),
    [
        (Whole(size=0), "size is 0 (allowed: an integer >= 1)"),
        (
            Entry("a", -1.0),
            'delay_ns is -1.0 (allowed: a number >= 0, in ns, or a text with a unit such as "1.5us")',
        ),
        (Inner("on"), 'is_fast is "on" (allowed: 1 or true for on, 0 or false for off)'),  # type: ignore[arg-type]
    ],
)
def test_values_given_in_python_are_checked_by_the_keys_and_named_as_arguments(
    made_in_python: Any, sentence: str
) -> None:
    with pytest.raises(UsageError) as caught:
        check_fields(made_in_python)
    assert str(caught.value) == sentence


def test_faults_are_located_by_line_or_path(tmp_path: Path) -> None:
    file = tmp_path / "file.yml"
    file.write_text("size: 3\nentries:\n  - name: a\n  - name: b\n    delay: soon\n")
    content = {"size": 3, "entries": [{"name": "a"}, {"name": "b", "delay": "soon"}]}
    for place, where in ((str(file), "line 5"), ("<file>", "entries.1.delay")):
        with pytest.raises(InputError) as caught:
            read(Whole, Section(place, content).lined, Remarks())
        assert str(caught.value).startswith(f'{place}: {where}: key "delay" is "soon" (allowed: ')


def test_lines_in_json_are_those_of_yaml_and_tabs_may_indent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = '\n{"a": [1, {"b c": -2.5e3,\n"d\\"": [ ],\n\n"e" : null}\n, "],"], "f": {},\n"g":\n{"h": [\n7]}}'
    paths: list[tuple[str | int, ...]] = [("a",), ("a", 0), ("a", 1, "b c"), ("a", 1, 'd"'), ("a", 1, "e", 0)]
    paths += [(), ("a", 2), ("a", 3), ("a", "x"), ("f", "x"), ("g", "h", 0), ("x", "y"), ("a", 1, 'd"', 0)]
    found = [line_of(text, path) for path in paths]
    assert found == [2, 2, 2, 3, 5, 1, 6, 2, 2, 6, 9, 1, 3]
    assert line_of(text.replace("\n", "\n\t"), ("g", "h", 0)) == 9
    monkeypatch.setattr(keys, "_line_in_json", lambda *_: int("left to YAML"))
    assert found == [line_of(text, path) for path in paths]
