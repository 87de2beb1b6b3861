"""Schemas of commands as tools, and the words of their calls: the command line reads the values of a call."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import pytest

from et_sim.basics.declared_options import Argument, Command, Option, declare, described, fields_of
from et_sim.basics.errors import UsageError
from et_sim.cli.tool_schemas import PROGRAMS, TOOLS, has_json, schema_of, words_of


class Every(Command):
    """A command with a field of every form."""

    job: Annotated[Path, "file of the job"]
    more: Annotated[Sequence[str], "further names", Argument()] = ()
    kind: Annotated[str, "one of two", Option(choices=("ring", "tree"))] = "ring"
    size: Annotated[float | None, "a size", Option(parse=float, least=1)] = None
    ranks: Annotated[int, "of the job", Option(least=0)] = 4
    share: Annotated[float, "of all"] = 0.5
    parts: Annotated[Sequence[int], ""] = ()
    fold: Annotated[bool, "simulate every rank"] = True
    deep: Annotated[bool, "look deeper"] = False
    text: Annotated[str, "", Option("-t --words")] = ""
    json: Annotated[bool, "print data"] = False
    compute_model: Annotated[str, "a program"] = ""


def test_a_schema_has_the_type_limit_choices_and_default_of_each_field() -> None:
    assert schema_of(Every) == {
        "type": "object",
        "properties": {
            "job": {"type": "string", "description": "file of the job"},
            "more": {"type": "array", "items": {"type": "string"}, "description": "further names"},
            "kind": {
                "type": "string",
                "enum": ["ring", "tree"],
                "description": "one of two",
                "default": "ring",
            },
            "size": {"type": ["string", "number"], "minimum": 1, "description": "a size"},
            "ranks": {"type": "integer", "minimum": 0, "description": "of the job", "default": 4},
            "share": {"type": "number", "description": "of all", "default": 0.5},
            "parts": {"type": "array", "items": {"type": "integer"}},
            "fold": {"type": "boolean", "description": "false: simulate every rank", "default": True},
            "deep": {"type": "boolean", "description": "look deeper", "default": False},
            "text": {"type": "string"},
        },
        "required": ["job"],
        "additionalProperties": False,
    }


def test_words_have_options_before_arguments_and_leave_out_what_is_the_default(tmp_path: Path) -> None:
    given = {"more": ["b", "c"], "job": "a", "parts": [1, 2], "fold": True, "deep": True, "text": "x"}
    assert words_of(Every, given | {"size": None}, tmp_path) == [
        *("--json", "--parts=1", "--parts=2", "--deep", "--words=x", "a", "b", "c")
    ]
    assert words_of(Every, {"job": "a", "fold": False, "deep": False}, tmp_path) == [
        "--json",
        "--no-fold",
        "a",
    ]


@pytest.mark.parametrize(
    "text", ["a,/etc/passwd", "x=/etc/passwd", "1:../b", "in ~/b", "a,b.py", "-t", "c/../../b"]
)
def test_every_part_of_a_value_stays_in_the_folder(text: str, tmp_path: Path) -> None:
    for given in ({"job": text}, {"job": "a", "more": ["b", text]}):
        with pytest.raises(UsageError):
            words_of(Every, given, tmp_path)
    assert words_of(Every, {"job": "a,b:c/d=e f.json"}, tmp_path) == ["--json", "a,b:c/d=e f.json"]
    too_long = "x" * 5000
    assert words_of(Every, {"job": too_long}, tmp_path) == ["--json", too_long]


@pytest.mark.parametrize(
    ("name", "given", "cause"),
    [
        ("machine", {"file": "hosts.xml"}, "file is given without name"),
        ("inspect", {"view": "ops"}, "view is given without directory"),
        ("inspect", {"directry": "a"}, "there is no argument 'directry' .did you mean 'directory'"),
        ("goodput", {"compute_model": "a"}, "known: job, days, runs, seed, out"),
    ],
)
def test_calls_with_an_unknown_argument_or_without_an_earlier_one_are_refused(
    name: str, given: dict[str, Any], cause: str, tmp_path: Path
) -> None:
    declared = importlib.import_module(f"et_sim.cli.{name}").Options
    with pytest.raises(UsageError, match=cause):
        words_of(declared, given, tmp_path)


def value_of(schema: dict[str, Any]) -> Any:
    """Return a value of a schema that is no default."""
    if schema["type"] == "array":
        return [value_of(schema["items"])] * 2
    if "enum" in schema:
        return next(value for value in reversed(schema["enum"]) if value != schema.get("default"))
    if schema["type"] == "boolean":
        return not schema.get("default", False)
    return "word" if schema["type"] == "string" else 7


@pytest.mark.parametrize("name", TOOLS)
def test_the_command_line_reads_each_value_of_a_call(name: str, tmp_path: Path) -> None:
    declared = importlib.import_module(f"et_sim.cli.{name}").Options
    parser, schema, fields = argparse.ArgumentParser(), schema_of(declared), fields_of(declared)
    declare(parser, declared)
    first = {"machine": {"name": "from"}}.get(name, {})  # whose file comes after a name
    required = {key: value_of(schema["properties"][key]) for key in schema["required"]} | first
    usual = vars(parser.parse_args(words_of(declared, required, tmp_path)))
    assert usual.get("json") is (True if has_json(declared) else None)
    assert {*schema["properties"]} == {*fields} - {"json", *PROGRAMS}
    for key, entry in schema["properties"].items():
        given = value_of(entry)
        read = vars(parser.parse_args(words_of(declared, required | {key: given}, tmp_path)))
        form = described(declared, key, fields[key])
        convert = getattr(form.form, "parse", None) or form.kind
        texts = given if form.is_several else [given]
        expected = texts if form.kind is bool else [convert(str(text)) for text in texts]
        assert read == usual | {key: expected if form.is_several else expected[0]}
